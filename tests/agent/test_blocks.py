from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402  # after the skip

from flightwatch.pytorch.blocks import find_blocks, unwrap  # noqa: E402


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(2, 2), nn.Linear(2, 2)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wte = nn.Embedding(4, 2)
        self.h = nn.ModuleList(Layer() for _ in range(3))
        self.ln_f = nn.LayerNorm(2)
        self.heads = nn.ModuleDict({"left": nn.Linear(2, 2), "right": nn.Linear(2, 2)})


def names(model: nn.Module) -> list[str]:
    return [name for name, _ in find_blocks(model)]


def test_repeated_layers_are_blocks_and_the_rest_is_its_leaves() -> None:
    assert names(Model()) == ["wte", "h.0", "h.1", "h.2", "ln_f", "heads.left", "heads.right"]


def test_no_block_contains_another() -> None:
    blocks = [module for _, module in find_blocks(nn.Sequential(Model(), Model(), nn.Linear(2, 2)))]

    for block in blocks:
        inner = {id(module) for module in block.modules()} - {id(block)}
        assert not inner & {id(other) for other in blocks}


def test_several_rows_of_layers_are_all_found() -> None:
    stages = nn.Sequential(nn.Linear(2, 2), nn.Sequential(Layer(), Layer()), nn.Sequential(Layer(), Layer(), nn.ReLU()))

    assert names(stages) == ["0", "1.0", "1.1", "2.0", "2.1", "2.2"]


def test_a_row_of_lists_is_looked_into() -> None:
    lists = nn.ModuleList(nn.ModuleList(Layer() for _ in range(2)) for _ in range(2))

    assert names(lists) == ["0.0", "0.1", "1.0", "1.1"]


def test_without_repetition_the_leaves_are_the_blocks() -> None:
    assert names(nn.Sequential(nn.Linear(2, 2), nn.ReLU())) == ["0", "1"]
    assert names(nn.Linear(2, 2)) == ["Linear"]


def test_a_shared_layer_is_one_block() -> None:
    layer = Layer()

    assert names(nn.Sequential(layer, Layer(), layer)) == ["0", "1"]


def test_a_compiled_module_is_one_block_whatever_it_holds() -> None:
    model = nn.Sequential(torch.compile(Model()), nn.Linear(2, 2))

    assert names(model) == ["0", "1"]


def test_wrappers_are_taken_off() -> None:
    model = Model()

    assert unwrap(nn.DataParallel(nn.DataParallel(model))) is model
