"""Which modules of a model are its blocks: found by repetition in the module tree."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from torch import nn

# Attribute under which a wrapper keeps the model, by the wrapper's class name.
_WRAPPED = {"DistributedDataParallel": "module", "FullyShardedDataParallel": "module", "DataParallel": "module"}
# A container calls nothing itself, so it never shows up as a call.
_CONTAINERS = (nn.ModuleList, nn.ModuleDict)
# `torch.compile(module)`: one op from outside, whatever it holds
_COMPILED = "OptimizedModule"


def unwrap(model: nn.Module) -> nn.Module:
    """Return the model inside DDP, FSDP and the like."""
    while (attribute := _WRAPPED.get(type(model).__name__)) is not None:
        model = getattr(model, attribute)
    return model


def find_blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Return (name, module) of each block of the unwrapped `model`, in the order of its tree; none contains another.

    The children of one class that repeat in a ModuleList or Sequential are blocks if they are more than a leaf; of
    the rest, the leaves are.

    Example: a GPT with `h = ModuleList([Block, ...])` gives wte, wpe, h.0, h.1, ..., ln_f, head.
    """
    return list(_walk("", model, set()))


def _walk(name: str, module: nn.Module, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
    if id(module) in seen:  # shared modules are one block, under their first name
        return
    seen.add(id(module))
    children = list(module.named_children())
    if type(module).__name__ == _COMPILED or not children:
        if not isinstance(module, _CONTAINERS):
            yield name or type(module).__name__, module
        return
    repeated = _repeated_class(module)
    for child_name, child in children:
        path = f"{name}.{child_name}" if name else child_name
        if repeated is not None and type(child) is repeated:
            if id(child) not in seen:
                seen.add(id(child))
                yield path, child
        else:
            yield from _walk(path, child, seen)


def _repeated_class(module: nn.Module) -> type[nn.Module] | None:
    """Return the class of which a container holds at least two that are more than a leaf, or None."""
    if not isinstance(module, (nn.ModuleList, nn.Sequential)):
        return None
    classes = Counter(type(child) for child in module.children() if next(child.children(), None) is not None)
    if not classes:
        return None
    found, count = classes.most_common(1)[0]
    if count < 2 or found in _CONTAINERS:
        return None
    # a row of plain rows (stages of layers) is looked into
    rows = found is nn.Sequential and any(_repeated_class(inner) for child in module for inner in child.modules())
    return None if rows else found
