"""Every collective and point-to-point op of c10d, seen where all of them pass: the dispatcher.

A Python kernel at BackendSelect notes the op and redispatches it without that key. So DDP's own all-reduces, issued
from C++, and functional and DTensor collectives are seen, which wrapping torch.distributed's functions misses. The
end comes from the Work's future, on a thread of the backend; on accelerators that future completes at enqueue, so
there only the issue is recorded.
"""

from __future__ import annotations

import atexit
import itertools
import os
import time
import warnings
import weakref
from collections.abc import Callable
from time import monotonic_ns
from typing import Any

import torch
import torch.distributed as dist

from flightwatch import _ops as ops
from flightwatch import _session
from flightwatch._guard import guard, guarded
from flightwatch._identity import DIMENSIONS
from flightwatch._recorder import Recorder
from flightwatch.pytorch.patches import Patches

_NOT_COLLECTIVE = ("check_for_nan",)
_POINT_TO_POINT = {"send": 1, "recv_": -1, "recv_any_source_": -1}
# Only one side's tensors are there on every rank: gather_ has outputs at the root only, scatter_ inputs.
_SIZED_BY = {"gather_": 1, "scatter_": 0, "reduce_scatter_": 1, "allgather_": 0}
_NO_BYTES = ("barrier", "monitored_barrier_")
_MAX_UNWAITED = 256  # works without a future, kept until someone waits for them
# What the backend's thread still does after it has dropped our callback: it frees tensors, which takes the
# interpreter's lock. Milliseconds on a loaded machine.
_SETTLE_SECONDS = 0.02


class _Group:
    """What records say of a process group."""

    def __init__(self, group: Any) -> None:
        self.ranks = _ranks(group)
        ranks = self.ranks or {}
        self.members = tuple(sorted(ranks, key=lambda rank: int(ranks[rank])))
        described = group.group_desc
        self.name = described if described not in ("", "undefined") else group.group_name
        self.backend = "" if self.ranks is None else str(dist.get_backend(group))
        self.rank = group.rank()


class _Call:
    """One op between issue and end."""

    __slots__ = ("device", "issue_ns", "keeps", "op", "recorder", "seq", "step", "storage")

    def __init__(self, recorder: Recorder, op: int, seq: int, device: str) -> None:
        self.recorder = recorder
        self.op = op
        self.seq = seq
        self.step = recorder.step
        self.keeps = recorder.keeps
        self.device = device
        self.storage = 0  # address of its output, where the end is when that has been waited for
        self.issue_ns = monotonic_ns()

    def record_end(self) -> None:
        end_ns = monotonic_ns()
        if self.keeps:
            self.recorder.record(self.op, self.issue_ns, end_ns - self.issue_ns, step=self.step, seq=self.seq)


class _End:
    """What the backend's thread calls at the end of an op; alive until that thread needs nothing more of it."""

    __slots__ = ("__weakref__", "_call")

    def __init__(self, call: _Call) -> None:
        self._call = call

    @guarded("collective hook")
    def __call__(self, future: Any) -> None:
        """Record the end. An op that failed has none: it is what never ended."""
        future.value()
        self._call.record_end()


class Collectives:
    """Hooks on c10d's ops. `sink` gives the recorder, and may start the session: a collective is a sign of training."""

    def __init__(self, sink: Callable[[], Recorder | None]) -> None:
        self._sink = sink
        self._libraries: list[Any] = []
        self._groups: dict[tuple[str, int], _Group] = {}
        self._counters: dict[object, itertools.count[int]] = {}
        self._unwaited: dict[int, tuple[Any, _Call]] = {}
        # a set's own `discard` empties it: Python code there could lose the interpreter's lock just before the exit
        self._ends: set[weakref.ref[_End]] = set()
        self._patches = Patches()

    def install(self) -> None:
        """Register a kernel for each op of the c10d schema list."""
        with warnings.catch_warnings():  # torch warns where another tool stands at the same place
            warnings.simplefilter("ignore")
            self._register()
        self._patches.replace(dist.Work, "wait", self._watched_wait(dist.Work.wait))
        atexit.register(self._settle)
        os.register_at_fork(after_in_child=self._ends.clear)  # the backend's threads are not in the child

    def _register(self) -> None:
        library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]  # torch ships it so
        self._libraries.append(library)
        for schema in torch._C._jit_get_all_schemas():
            namespace, _, name = schema.name.partition("::")
            if namespace == "c10d" and name not in _NOT_COLLECTIVE:
                library.impl(name, self._kernel(name, schema), "BackendSelect", with_keyset=True)
        functional: Any = torch.library.Library("_c10d_functional", "IMPL")  # type: ignore[no-untyped-call]  # as above
        self._libraries.append(functional)
        functional.impl("wait_tensor", self._wait_kernel(), "BackendSelect", with_keyset=True)

    def remove(self) -> None:
        """Take the kernels out of the dispatcher."""
        while self._libraries:
            self._libraries.pop()._destroy()
        self._patches.undo()
        if not self._ends:
            atexit.unregister(self._settle)
        self._unwaited.clear()

    def is_busy(self) -> bool:
        """Return whether an op that the backend has finished, or is about to, still has its end to write."""
        return bool(self._ends)

    def _settle(self) -> None:
        """At exit, let the ops in flight end, as the process group's destructor does a moment later anyway.

        A callback that comes when the interpreter is gone aborts the process.
        """
        if not self._ends:
            return
        try:
            while self._ends:
                time.sleep(0.001)
            time.sleep(_SETTLE_SECONDS)
        except KeyboardInterrupt:  # the user wants out
            return

    def _kernel(self, name: str, schema: Any) -> Callable[..., Any]:
        redispatch = getattr(torch.ops.c10d, name).default.redispatch
        key = torch._C.DispatchKey.BackendSelect
        place = next(i for i, argument in enumerate(schema.arguments) if "ProcessGroup" in str(argument.type))
        peer = next((i for i, argument in enumerate(schema.arguments) if argument.name in ("src", "dst")), -1)

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            call = self._issue(name, args, place, peer)
            result = redispatch(keyset.remove(key), *args, **kwargs)
            if call is not None:
                self._follow(call, result, args)
            return result

        return kernel

    def _wait_kernel(self) -> Callable[..., Any]:
        redispatch = torch.ops._c10d_functional.wait_tensor.default.redispatch
        key = torch._C.DispatchKey.BackendSelect

        def kernel(keyset: Any, tensor: torch.Tensor) -> Any:
            result = redispatch(keyset.remove(key), tensor)
            if self._unwaited:
                self._finish_tensor(tensor)
            return result

        return kernel

    @guarded("collective hook")
    def _issue(self, name: str, args: tuple[Any, ...], place: int, peer: int) -> _Call | None:
        recorder = self._sink()
        if recorder is None:
            return None
        group = self._group(args[place])
        members, lane = group.members, (group.name, "", group.members)
        if name in _POINT_TO_POINT:
            other = members[args[peer]] if peer >= 0 and args[peer] < len(members) else -1
            me = members[group.rank]
            pair = (me, other) if _POINT_TO_POINT[name] > 0 else (other, me)
            members, lane = (
                (pair, (group.name, "p2p", pair))
                if other >= 0
                else (tuple(sorted(members)), (group.name, "any", members))
            )
        else:
            members = tuple(sorted(members))
        n_bytes, dtype, device = _payload(name, args[:place])
        # p2p ops count by pair, so that a group's collectives keep one number on all its ranks
        seq = next(self._counters.setdefault(lane, itertools.count()))
        described: dict[str, Any] = {
            "group": group.name,
            "members": members,
            "dtype": dtype,
            "size_class": ops.size_class(n_bytes),
            "backend": group.backend,
        }
        plain = name.strip("_")
        issue = recorder.op(ops.ISSUE, plain, **described)
        call = _Call(recorder, recorder.op(ops.COLLECTIVE, plain, **described), seq, device)
        recorder.record(issue, call.issue_ns, n_bytes, seq=seq)
        return call

    @guarded("collective hook")
    def _follow(self, call: _Call, result: Any, args: tuple[Any, ...]) -> None:
        if isinstance(result, tuple):
            result = result[-1] if result else None
        if not isinstance(result, torch.ScriptObject):
            call.record_end()  # it returned only when all was done
            return
        if call.device != "cpu":
            guard.say(f"collectives on {call.device}: only their issue is recorded")
            return
        work = dist.Work.unbox(result)
        try:
            future = work.get_future()
        except RuntimeError:  # point to point on gloo has none, nor have some reductions: they end in their `wait`
            outputs = _flatten(args[0])
            call.storage = outputs[0].untyped_storage().data_ptr() if outputs else 0
            while len(self._unwaited) >= _MAX_UNWAITED:
                self._unwaited.pop(next(iter(self._unwaited)))
            self._unwaited[id(work)] = (work, call)
            return
        end = _End(call)
        self._ends.add(weakref.ref(end, self._ends.discard))
        future.add_done_callback(end)

    def _watched_wait(self, original: Any) -> Any:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            result = original(work, *args, **kwargs)
            if self._unwaited:
                self._finish_waited(work)
            return result

        return wait

    @guarded("collective hook")
    def _finish_waited(self, work: Any) -> None:
        _, call = self._unwaited.pop(id(work), (None, None))
        if call is not None:
            call.record_end()

    @guarded("collective hook")
    def _finish_tensor(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage().data_ptr()
        for key, (_, call) in list(self._unwaited.items()):
            if storage and call.storage == storage:
                self._unwaited.pop(key, None)
                call.record_end()

    def _group(self, boxed: Any) -> _Group:
        group = dist.ProcessGroup.unbox(boxed)
        key = (group.group_name, group.size())
        found = self._groups.get(key)
        if found is None or found.ranks is not _ranks(group):  # a name is used again after destroy_process_group()
            found = _Group(group)
            if found.members:  # one that is still being made is asked again
                self._groups[key] = found
                dimension = found.name.removeprefix("mesh_")  # what DeviceMesh calls the group of one of its dimensions
                if dimension in DIMENSIONS and dimension != found.name:
                    _session.place("DeviceMesh", {dimension: found.rank})
            else:
                found.members = tuple(range(group.size()))
        return found


def _ranks(group: Any) -> dict[int, int] | None:
    """Return torch's own table of a group, global rank to rank in it; None while it does not know them yet."""
    ranks: dict[int, int] | None = dist.distributed_c10d._world.pg_group_ranks.get(group)
    return ranks


def _payload(name: str, arguments: tuple[Any, ...]) -> tuple[int, str, str]:
    """Return (bytes, dtype, device type) of an op: of the larger of its sides, or the one all ranks have."""
    sides = [_flatten(argument) for argument in arguments]
    tensors = [tensor for side in sides for tensor in side]
    if not tensors:
        return 0, "", "cpu"
    device = tensors[0].device.type
    if name in _NO_BYTES:
        return 0, "", device
    sizes = [sum(tensor.numel() * tensor.element_size() for tensor in side) for side in sides]
    n_bytes = sizes[_SIZED_BY[name]] if name in _SIZED_BY and _SIZED_BY[name] < len(sizes) else max(sizes)
    return n_bytes, str(tensors[0].dtype).removeprefix("torch."), device


def _flatten(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _flatten(item)]
    return []
