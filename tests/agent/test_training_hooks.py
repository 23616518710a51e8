"""One process, real torch: what the hooks see, and that they change nothing."""

from __future__ import annotations

import copy
import io
import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
import torch  # after the skip
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import flightwatch
from flightwatch import _session
from flightwatch._guard import guard
from flightwatch.pytorch import steps, training
from tests.agent.ring_reader import Ring, read_all
from tests.agent.tiny_training import Model, train

BLOCKS = ["wte", "h.0", "h.1", "head"]


@pytest.fixture
def watched(fresh_process: Path) -> Path:
    training.training.install()
    return fresh_process


def ring_of(directory: Path) -> Ring:
    flightwatch.close()
    (ring,) = read_all(directory)
    return ring


def never_nest(ring: Ring) -> bool:
    spans = sorted((r["start_ns"], r["start_ns"] + r["value"]) for r in ring.kind("forward") + ring.kind("backward"))
    return all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))


def test_every_step_is_recorded_whole_with_no_line_changed(watched: Path) -> None:
    losses = train(n_steps=4)

    ring = ring_of(watched)
    expected = {("forward", name): 4 for name in BLOCKS} | {("backward", name): 4 for name in BLOCKS}
    expected |= {("loader", "DataLoader"): 4, ("optimizer", "AdamW"): 4, ("step", "step"): 4}
    expected |= {("sample", name): 4 for name in ("loss", "grad_norm", "learning_rate")}
    assert ring.counts() == expected
    assert [r["step"] for r in ring.kind("step")] == [0, 1, 2, 3]
    assert [r["value"] for r in ring.kind("sample") if r["name"] == "loss"] == losses[:4]
    for name in BLOCKS:
        assert [r["step"] for r in ring.records if (r["kind"], r["module"]) == ("backward", name)] == [0, 1, 2, 3]
    assert never_nest(ring)
    assert guard.failures == {}


def test_results_are_bit_identical_to_an_unwatched_run(watched: Path) -> None:
    watched_losses = train()
    flightwatch.close()

    assert train() == watched_losses


def test_micro_batches_are_told_apart(watched: Path) -> None:
    train(n_steps=2, micro=3)

    ring = ring_of(watched)
    for kind in ("forward", "backward"):
        marks = [(r["step"], r["aux"]) for r in ring.kind(kind) if r["module"] == "h.0"]
        assert marks == [(step, micro) for step in range(2) for micro in range(3)]
    assert [(r["step"], r["aux"]) for r in ring.kind("sample") if r["name"] == "loss"] == [
        (step, micro) for step in range(2) for micro in range(3)
    ]


@pytest.mark.parametrize("recompute", ["reentrant", "saved"])
def test_recomputation_changes_no_result_and_never_nests(watched: Path, recompute: str) -> None:
    losses = train(model=None, n_steps=3) if not recompute else train(model=_seeded(recompute), n_steps=3)

    ring = ring_of(watched)
    assert never_nest(ring)
    assert ring.counts()["backward", "h.1"] == 3
    assert losses == train(model=_seeded(recompute), n_steps=3)
    assert guard.failures == {}


def _seeded(recompute: str = "") -> Model:
    torch.manual_seed(0)
    return Model(recompute)


def test_an_exception_in_a_forward_passes_and_leaves_no_cell_open(watched: Path) -> None:
    model = _seeded()
    torch.optim.SGD(model.parameters(), lr=0.1)
    bad = torch.full((1, 2), 99)

    with pytest.raises(IndexError, match="index out of range"):
        model(bad)

    session = _session.current()
    assert session is not None
    assert session.recorder._threads.mine.open == []
    model(torch.zeros(1, 2, dtype=torch.long))
    ring = ring_of(watched)
    assert [r["module"] for r in ring.kind("forward")] == BLOCKS
    assert [cell["op"] for cell in ring.cells] == [0]


def test_an_exception_in_a_backward_passes_and_the_next_step_is_whole(watched: Path) -> None:
    def explode(grad: torch.Tensor) -> torch.Tensor:
        raise ArithmeticError("mine")

    model = _seeded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = next(model.h[0].parameters()).register_hook(explode)  # type: ignore[no-untyped-call]  # torch ships it so
    x = torch.zeros(1, 2, dtype=torch.long)
    with pytest.raises(ArithmeticError, match="mine"):
        model(x).sum().backward()
    handle.remove()

    model(x).sum().backward()
    optimizer.step()

    ring = ring_of(watched)
    assert ring.counts()["backward", "h.0"] == 1
    assert ring.counts()["backward", "wte"] == 1
    assert ring.counts()["forward", "h.0"] == 2
    assert never_nest(ring)


def test_an_optimizer_that_raised_is_timed_anew(watched: Path) -> None:
    model = _seeded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure() -> float:
        raise ArithmeticError("mine")

    with pytest.raises(ArithmeticError, match="mine"):
        optimizer.step(closure)
    optimizer.step()

    assert ring_of(watched).counts()["optimizer", "SGD"] == 1


def test_an_exhausted_loader_and_a_failing_one_leave_no_record(watched: Path) -> None:
    class Failing(TensorDataset):
        def __getitem__(self, index: int) -> Any:
            raise LookupError("mine")

    model = _seeded()
    torch.optim.SGD(model.parameters(), lr=0.1)
    data = TensorDataset(torch.zeros(6))
    assert len(list(DataLoader(data, batch_size=2))) == 3
    with pytest.raises(LookupError, match="mine"):
        next(iter(DataLoader(Failing(torch.zeros(2)))))

    assert ring_of(watched).counts()["loader", "DataLoader"] == 3


def test_evaluation_is_seen_as_forwards_only(watched: Path) -> None:
    model = _seeded()
    torch.optim.SGD(model.parameters(), lr=0.1)
    with torch.no_grad():
        model.eval()(torch.zeros(1, 2, dtype=torch.long))
    with torch.inference_mode():
        model(torch.zeros(1, 2, dtype=torch.long))

    counts = ring_of(watched).counts()
    assert counts["forward", "h.0"] == 2
    assert counts["backward", "h.0"] == 0


def test_two_optimizers_step_once_each_and_the_last_made_ends_the_step(watched: Path) -> None:
    left, right = _seeded(), nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    first = torch.optim.SGD(left.parameters(), lr=0.1)
    second = torch.optim.Adam(right.parameters(), lr=0.1)
    for _ in range(3):
        first.step()
        second.step()

    ring = ring_of(watched)
    assert [(r["kind"], r["name"], r["step"]) for r in ring.kind("optimizer") + ring.kind("step")] == [
        *[("optimizer", name, step) for step in range(3) for name in ("SGD", "Adam")],
        *[("step", "step", step) for step in range(3)],
    ]


def test_a_main_optimizer_that_rests_is_succeeded(watched: Path) -> None:
    model = _seeded()
    stepping = torch.optim.SGD(model.parameters(), lr=0.1)
    resting = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(steps._REST_BEFORE_SUCCESSION + 4):
        stepping.step()

    assert len(ring_of(watched).kind("step")) == 5
    assert resting is not None


def test_copies_and_pickles_of_a_watched_model_work_and_are_not_watched(watched: Path) -> None:
    model = _seeded()
    torch.optim.SGD(model.parameters(), lr=0.1)
    saved = io.BytesIO()
    x = torch.zeros(1, 2, dtype=torch.long)

    torch.save(model, saved)
    copies = [copy.deepcopy(model), pickle.loads(pickle.dumps(model))]
    copies.append(torch.load(io.BytesIO(saved.getvalue()), weights_only=False))

    expected = model(x)
    assert b"flightwatch" not in saved.getvalue()
    for twin in copies:
        assert torch.equal(twin(x), expected)
    assert ring_of(watched).counts()["forward", "h.0"] == 1


def test_a_compiled_model_keeps_one_graph(watched: Path) -> None:
    model = _seeded()
    torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.zeros(1, 2, dtype=torch.long)

    compiled = torch.compile(model, backend="eager", fullgraph=True)

    assert torch.equal(compiled(x), model(x))
    assert guard.failures == {}


def test_explicit_steps_end_with_their_block_and_take_the_users_numbers(fresh_process: Path) -> None:
    assert flightwatch.init(run="mine")
    model = _seeded()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    assert flightwatch.watch(model, optimizer=optimizer) is model
    for number in (10, None, 20):
        with flightwatch.step(number):
            model(torch.zeros(1, 2, dtype=torch.long)).sum().backward()
            optimizer.step()
            optimizer.step()
            flightwatch.log(loss=torch.tensor(1.5), tokens=7, half=torch.tensor([0.5]))

    ring = ring_of(fresh_process)
    assert ring.identity["run"] == "mine"
    assert [r["step"] for r in ring.kind("step")] == [10, 11, 20]
    assert [r["step"] for r in ring.records if r["module"] == "h.0" and r["kind"] == "forward"] == [10, 11, 20]
    told = {(r["name"], r["value"]) for r in ring.kind("sample") if r["name"] != "learning_rate"}
    assert told == {("loss", 1.5), ("tokens", 7.0), ("half", 0.5)}


def test_the_users_exception_leaves_a_step_unchanged_and_unrecorded(fresh_process: Path) -> None:
    flightwatch.init()
    error = RuntimeError("mine")

    with pytest.raises(RuntimeError) as caught, flightwatch.step():
        raise error

    assert caught.value is error
    assert error.__context__ is None
    assert ring_of(fresh_process).kind("step") == []


def test_a_tensor_on_a_device_is_never_read(fresh_process: Path) -> None:
    flightwatch.init()
    on_device = torch.zeros((), device="meta")

    flightwatch.log(loss=on_device, sane=1.0)

    assert [r["name"] for r in ring_of(fresh_process).kind("sample")] == ["sane"]
    assert "loss: a tensor of 1 numbers on meta is not read" in (fresh_process / "agent.log").read_text()


def test_what_the_user_logs_is_not_recorded_twice(fresh_process: Path) -> None:
    flightwatch.init()
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(flightwatch.watch(model).parameters(), lr=0.1)
    for _ in range(2):
        with flightwatch.step():
            loss = model(torch.ones(1, 2)).sum()
            loss.backward()
            optimizer.step()
            flightwatch.log(loss=loss)

    assert len([r for r in ring_of(fresh_process).kind("sample") if r["name"] == "loss"]) == 2


def test_a_scaled_loss_is_recorded_before_scaling(watched: Path) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    loss = model(torch.ones(1, 2)).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()

    assert [r["value"] for r in ring_of(watched).kind("sample") if r["name"] == "loss"] == [loss.item()]


def test_everything_is_put_back_when_the_watch_ends(fresh_process: Path) -> None:
    def face() -> list[Any]:
        from torch.utils.data import dataloader

        return [
            torch.Tensor.backward,
            torch.nn.utils.clip_grad_norm_,
            torch.optim.Optimizer.__init__,
            torch.amp.GradScaler.scale,
            dataloader._BaseDataLoaderIter.__next__,
            torch.distributed.Work.wait,
        ]

    before = face()
    training.training.install()
    model = _seeded()
    torch.optim.SGD(model.parameters(), lr=0.1)
    assert face() != before

    flightwatch.close()

    assert face() == before
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_the_kill_switch_makes_every_call_a_harmless_nothing(
    fresh_process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLIGHTWATCH", "0")
    model = nn.Linear(2, 2)

    assert not flightwatch.init()
    assert flightwatch.watch(model, optimizer=object(), dataloader=object()) is model
    with flightwatch.step():
        flightwatch.log(loss=1.0)
    flightwatch.close()

    assert not (fresh_process / "rings").exists()


def test_a_ring_that_cannot_be_made_leaves_training_unwatched(
    fresh_process: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reference = train()
    (fresh_process / "file").write_text("")
    monkeypatch.setenv("FLIGHTWATCH_DIR", str(fresh_process / "file" / "below"))

    assert not flightwatch.init()
    training.training.install()

    assert train() == reference
