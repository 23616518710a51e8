"""The hot path: op names to ids, one record per op, and what each thread is doing now."""

from __future__ import annotations

import struct
import threading
from time import monotonic_ns

from flightwatch import _layout as layout
from flightwatch import _ops as ops
from flightwatch._ops import Op
from flightwatch._ring import RingWriter

_PACK_CELL = layout.CELL.pack
_F64_AS_I64 = struct.Struct("<d")
_I64 = struct.Struct("<q")
_NOTHING = (0, 0)  # a cell between ops
_U32 = 0xFFFFFFFF
_U24 = 0xFFFFFF
# More open spans than this on one thread are ends that never came (exceptions); the oldest are forgotten.
MAX_OPEN_SPANS = 64


class _Thread:
    """One thread's cell and open spans. Its cell goes back when the thread ends and its locals go."""

    __slots__ = ("_ring", "at", "cell", "native", "open", "version")

    def __init__(self, ring: RingWriter) -> None:
        self._ring = ring
        self.native = threading.get_native_id()
        self.version = 0
        self.open: list[tuple[int, int]] = []  # (op, start ns), outermost first
        self.at = ring.claim_cell()  # -1: more threads than cells
        self.cell = slice(self.at, self.at + layout.CELL.size) if self.at >= 0 else slice(0, 0)

    def __del__(self) -> None:
        try:
            if self.at >= 0:
                self._ring.release_cell(self.at)
        except Exception:  # noqa: S110  # nothing may be printed from here, at the interpreter's end not even logged
            pass


class _Threads(threading.local):
    """Makes a thread's state at its first span."""

    def __init__(self, ring: RingWriter) -> None:
        self.mine = _Thread(ring)


class Recorder:
    """Writes what a rank does into its ring. Every method may be called from any thread.

    `step` and `micro` are what records are marked with; the hooks move them. `keeps` is False in steps that are sampled
    out, and while the control block says pause.
    """

    def __init__(self, ring: RingWriter, *, first_step: int = 0) -> None:
        self.ring = ring
        self.step = first_step & _U32
        self.micro = 0
        self.keeps = True
        self._paused = False
        self._threads = _Threads(ring)
        self._ids: dict[tuple[object, ...], int] = {}
        self._last_id = 0
        self._step_op = self.op(ops.STEP, "step")
        self._step_start_ns = ring.start_monotonic_ns
        self._step_is_open = False

    # names

    def op(
        self,
        kind: str,
        name: str,
        *,
        module: str = "",
        group: str = "",
        members: tuple[int, ...] = (),
        dtype: str = "",
        size_class: int = 0,
        backend: str = "",
    ) -> int:
        """Return the id of an op in this epoch, new or known; 0 ("other") once the name table is full."""
        key = (kind, name, module, group, members, dtype, size_class, backend)
        known = self._ids.get(key)
        return known if known is not None else self._new_op(key, Op(*key))

    def _new_op(self, key: tuple[object, ...], descriptor: Op) -> int:
        # with a limit: a signal handler or finaliser that comes back here on the same thread must not wait for itself
        if not self.ring.names_lock.acquire(timeout=0.05):
            return 0
        try:
            known = self._ids.get(key)
            if known is not None:
                return known
            if len(self._ids) >= layout.MAX_OPS:
                return 0  # not even remembered: names without end must not grow this dict
            found = self._last_id + 1
            if self.ring.append_name(found, descriptor):
                self._last_id = found
            else:
                found = 0
            self._ids[key] = found
            return found
        finally:
            self.ring.names_lock.release()

    # spans

    def begin(self, op: int) -> None:
        """Open a span on this thread: its cell says `op` from now on."""
        mine = self._threads.mine
        start_ns = monotonic_ns()
        spans = mine.open
        if len(spans) >= MAX_OPEN_SPANS:
            del spans[0]
        spans.append((op, start_ns))
        mine.version = version = mine.version + 2
        if mine.at >= 0:
            self.ring.shared[mine.cell] = _PACK_CELL(mine.native, op, self.step, start_ns, version)

    def end(self, op: int, aux: int = 0) -> None:
        """Close the innermost open span of `op` on this thread and record it; the cell says what encloses it.

        Spans inside it that never ended (an exception went through them) are dropped. Without an open one, nothing
        happens.
        """
        end_ns = monotonic_ns()
        mine = self._threads.mine
        spans = mine.open
        start_ns = spans.pop()[1] if spans and spans[-1][0] == op else _pop(spans, op)
        if start_ns < 0:
            return
        if self.keeps:
            self.ring.write(op, self.step, start_ns, end_ns - start_ns, 0, aux)
        outer, outer_start_ns = spans[-1] if spans else _NOTHING
        mine.version = version = mine.version + 2
        if mine.at >= 0:
            self.ring.shared[mine.cell] = _PACK_CELL(mine.native, outer, self.step, outer_start_ns, version)

    def abandon(self, op: int) -> None:
        """Close the innermost open span of `op` on this thread without recording it."""
        mine = self._threads.mine
        if _pop(mine.open, op) >= 0:
            self._restore_cell(mine)

    def _restore_cell(self, mine: _Thread) -> None:
        outer, start_ns = mine.open[-1] if mine.open else _NOTHING
        mine.version += 2
        if mine.at >= 0:
            self.ring.shared[mine.cell] = _PACK_CELL(mine.native, outer, self.step, start_ns, mine.version)

    # single records

    def record(self, op: int, start_ns: int, value: int, *, step: int | None = None, seq: int = 0) -> None:
        """Write one record as told: `value` is a duration in ns, or bytes for an issue; `step` None means now's."""
        if self.keeps:
            self.ring.write(op, self.step if step is None else step, start_ns, value, seq & _U32, self.micro & _U24)

    def sample(self, name: str, value: float, *, aux: int = 0) -> None:
        """Record a number of this step; NaN and infinities are kept."""
        if self.keeps:
            bits = _I64.unpack(_F64_AS_I64.pack(value))[0]
            self.ring.write(self.op(ops.SAMPLE, name), self.step, monotonic_ns(), bits, 0, aux & _U24)

    # steps

    def begin_step(self) -> None:
        """Begin the step here, rather than where the last one ended."""
        self.begin(self._step_op)
        self._step_start_ns = monotonic_ns()
        self._step_is_open = True

    def end_step(self, *, recorded: bool = True) -> None:
        """Write the step's record, move on to the next step, and read the control block once.

        Spans left open on this thread are forgotten: between two steps nothing of ours is running.
        """
        end_ns = monotonic_ns()
        if recorded and not self._paused:
            # written in sampled-out steps too: one record a step is what progress is read from
            self.ring.write(self._step_op, self.step, self._step_start_ns, end_ns - self._step_start_ns)
        self._step_start_ns = end_ns
        self._step_is_open = False
        if recorded:
            self.step = (self.step + 1) & _U32
        self.micro = 0
        _, paused, every = self.ring.read_control()
        self._paused = bool(paused)
        self.keeps = not paused and (every <= 1 or self.step % every == 0)
        mine = self._threads.mine
        mine.open.clear()
        self._restore_cell(mine)

    def skip_to(self, step: int) -> None:
        """Count on from `step`: a resume, or a framework that knows its global step."""
        self.step = step & _U32


def _pop(spans: list[tuple[int, int]], op: int) -> int:
    """Drop the innermost span of `op` and all inside it; return its start in ns, -1 when there is none."""
    for place in range(len(spans) - 1, -1, -1):
        if spans[place][0] == op:
            start_ns = spans[place][1]
            del spans[place:]
            return start_ns
    return -1
