"""Every collective and point-to-point op of c10d, seen where all of them pass: the dispatcher.

A Python kernel at BackendSelect notes the op and redispatches it without that key. So DDP's own all-reduces, issued
from C++, and functional and DTensor collectives are seen, which wrapping torch.distributed's functions misses. The
end comes from the Work's future, on a thread of the backend; on accelerators that future completes at enqueue, so
there only the issue is recorded.
"""

from __future__ import annotations

import itertools
import threading
import warnings
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
_MAX_UNWAITED = 256  # point-to-point works kept until someone waits for them


class _Group:
    """What records say of a process group."""

    def __init__(self, group: Any) -> None:
        self.members = _members(group)
        described = group.group_desc
        self.name = described if described not in ("", "undefined") else group.group_name
        self.backend = str(dist.get_backend(group))
        self.rank = group.rank()


class _Call:
    """One op between issue and end."""

    __slots__ = ("device", "done", "issue_ns", "keeps", "op", "recorder", "seq", "step")

    def __init__(self, recorder: Recorder, op: int, seq: int, device: str) -> None:
        self.recorder = recorder
        self.op = op
        self.seq = seq
        self.step = recorder.step
        self.keeps = recorder.keeps
        self.device = device
        self.issue_ns = monotonic_ns()

    def record_end(self) -> None:
        end_ns = monotonic_ns()
        if self.keeps:
            self.recorder.record(self.op, self.issue_ns, end_ns - self.issue_ns, step=self.step, seq=self.seq)


class Collectives:
    """Hooks on c10d's ops. `sink` gives the recorder, and may start the session: a collective is a sign of training."""

    def __init__(self, sink: Callable[[], Recorder | None]) -> None:
        self._sink = sink
        self._library: Any = None
        self._groups: dict[tuple[str, int], _Group] = {}
        self._counters: dict[object, itertools.count[int]] = {}
        self._unwaited: dict[int, tuple[Any, _Call]] = {}
        self._in_flight: set[_Call] = set()
        self._inside = threading.local()
        self._patches = Patches()

    def install(self) -> None:
        """Register a kernel for each op of the c10d schema list."""
        with warnings.catch_warnings():  # torch warns where another tool stands at the same place
            warnings.simplefilter("ignore")
            self._register()
        self._patches.replace(dist.Work, "wait", self._watched_wait(dist.Work.wait))

    def _register(self) -> None:
        self._library = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]  # torch ships it so
        for schema in torch._C._jit_get_all_schemas():
            namespace, _, name = schema.name.partition("::")
            if namespace == "c10d" and name not in _NOT_COLLECTIVE:
                self._library.impl(name, self._kernel(name, schema), "BackendSelect", with_keyset=True)

    def remove(self) -> None:
        """Take the kernels out of the dispatcher."""
        if self._library is not None:
            self._library._destroy()
            self._library = None
        self._patches.undo()
        self._unwaited.clear()

    def is_busy(self) -> bool:
        """Return whether an op that the backend has finished, or is about to, still has its end to write."""
        return bool(self._in_flight)

    def _kernel(self, name: str, schema: Any) -> Callable[..., Any]:
        redispatch = getattr(torch.ops.c10d, name).default.redispatch
        key = torch._C.DispatchKey.BackendSelect
        place = next(i for i, argument in enumerate(schema.arguments) if "ProcessGroup" in str(argument.type))
        peer = next((i for i, argument in enumerate(schema.arguments) if argument.name in ("src", "dst")), -1)

        def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
            call = self._issue(name, args, place, peer)
            result = redispatch(keyset.remove(key), *args, **kwargs)
            if call is not None:
                self._follow(call, result)
            return result

        return kernel

    @guarded("collective hook")
    def _issue(self, name: str, args: tuple[Any, ...], place: int, peer: int) -> _Call | None:
        recorder = self._sink()
        if recorder is None:
            return None
        group = self._group(args[place])
        members, lane = group.members, (group.name, group.members)
        if name in _POINT_TO_POINT:
            other = members[args[peer]] if peer >= 0 and args[peer] < len(members) else -1
            me = members[group.rank]
            pair = (me, other) if _POINT_TO_POINT[name] > 0 else (other, me)
            members, lane = (pair, ("p2p", pair)) if other >= 0 else (tuple(sorted(members)), ("any", members))
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
    def _follow(self, call: _Call, result: Any) -> None:
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
        except RuntimeError:  # point to point on gloo has none: its end is when it has been waited for
            while len(self._unwaited) >= _MAX_UNWAITED:
                self._unwaited.pop(next(iter(self._unwaited)))
            self._unwaited[id(work)] = (work, call)
            return
        self._in_flight.add(call)
        future.add_done_callback(lambda done: self._finish(call, done))

    @guarded("collective hook")
    def _finish(self, call: _Call, future: Any) -> None:
        """On a thread of the backend. An op that failed has no end: it is what never ended."""
        try:
            future.value()
            call.record_end()
        finally:
            self._in_flight.discard(call)

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

    def _group(self, boxed: Any) -> _Group:
        group = dist.ProcessGroup.unbox(boxed)
        key = (group.group_name, group.size())
        found = self._groups.get(key)
        if found is None:
            found = _Group(group)
            if found.members:  # one that is still being made is asked again
                self._groups[key] = found
                dimension = found.name.removeprefix("mesh_")  # what DeviceMesh calls the group of one of its dimensions
                if dimension in DIMENSIONS and dimension != found.name:
                    _session.place("DeviceMesh", {dimension: found.rank})
            else:
                found.members = tuple(range(group.size()))
        return found


def _members(group: Any) -> tuple[int, ...]:
    """Return the global ranks of a group in its own order; () while torch does not know them yet."""
    ranks = dist.distributed_c10d._world.pg_group_ranks.get(group, {})
    return tuple(sorted(ranks, key=lambda rank: int(ranks[rank])))


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
