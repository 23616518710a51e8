"""Follows one ring: gives back what was written since the last look, and says what could not be read."""

from __future__ import annotations

from dataclasses import dataclass

from flightwatch._layout import RECORD_BYTES, lap_of
from flightwatch.forward.ring_file import RingFile

FIRST_READ_RECORDS = 128  # 4 KiB
MOST_READ_RECORDS = 8_192
LOOKAHEAD_RECORDS = 256
# A slot is skipped when its writer left it half done, or was stopped in front of it, for this long while later ones
# came. On a host with many times more work than cores a thread is off the CPU for more than a second.
HOLD_SECONDS = 5.0
TORN = "torn"
OVERRUN = "ring_overrun"


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive records, whole and of their lap."""

    first: int
    records: bytes

    @property
    def end(self) -> int:
        """Return the number after the last one."""
        return self.first + len(self.records) // RECORD_BYTES


@dataclass(frozen=True, slots=True)
class LostRecords:
    """Records first..last that nobody will read."""

    reason: str
    first: int
    last: int


class Tail:
    """A reader's place in a ring: `position` is the next record to read, `lost` what was skipped (callers take it)."""

    def __init__(self, ring: RingFile, position: int) -> None:
        self._ring = ring
        self._capacity = ring.capacity
        self.position = position
        self.lost: list[LostRecords] = []
        self._held_since = 0.0
        self._held_at = -1

    def read(self, now: float, *, max_records: int, final: bool = False) -> list[Piece]:
        """Return the records written since the last call, oldest first.

        Args:
            now: monotonic seconds.
            max_records: at most this many.
            final: the writer is gone, so what is not there now never comes, and nothing is waited for.
        """
        pieces: list[Piece] = []
        chunk = FIRST_READ_RECORDS
        while max_records > 0:
            slot = self.position % self._capacity
            count = min(chunk, max_records, self._capacity - slot)
            body = self._ring.read_records(slot, count)
            good = _count_good(body, self._lap())
            if good:
                pieces.append(Piece(self.position, body[: good * RECORD_BYTES]))
                self.position += good
                max_records -= good
            if good == count:
                chunk = min(2 * chunk, MOST_READ_RECORDS)
            elif not self._pass(now, final):
                break
        return pieces

    def is_written(self, record: int) -> bool:
        """Return whether record `record` stands in its slot now."""
        return self._find_good(record, 1) is not None

    def skip_to(self, end: int) -> None:
        """Give up all records below `end`: their writer counted them, but they are not there."""
        if end > self.position:
            self.lost.append(LostRecords(TORN, self.position, end - 1))
            self.position = end

    def _lap(self) -> int:
        return lap_of(self.position, self._capacity)

    def _pass(self, now: float, final: bool) -> bool:
        """Get past a slot that does not hold the next record, if that is to be done now."""
        body = self._ring.read_records(self.position % self._capacity, 1)
        ahead = (body[0] - self._lap()) & 0xFF
        if body[0] == body[-1] and 0 < ahead < 128:
            self._jump()
            return True
        if body[0] == body[-1] and ahead == 0:
            return True  # it came while we looked
        later = self._find_good(self.position + 1, self._capacity - 1 if final else LOOKAHEAD_RECORDS)
        if later is None:
            return False
        if self._held_at != self.position:
            self._held_at, self._held_since = self.position, now
        if not final and now - self._held_since < HOLD_SECONDS:
            return False
        self.skip_to(later)
        return True

    def _jump(self) -> None:
        """Go on with the oldest records that are still there: the writer is more than a whole ring ahead."""
        laps = self._ring.read_records(0, self._capacity)[::RECORD_BYTES]
        ahead = (laps[0] - self._lap()) & 0xFF
        newest_lap_begin = (self.position // self._capacity + ahead) * self._capacity
        written = newest_lap_begin + laps.rfind(laps[0]) + 1
        margin = self._capacity // 16  # what the writer may overwrite before we have read it
        goal = max(written - self._capacity + margin, self.position + margin)
        self.lost.append(LostRecords(OVERRUN, self.position, goal - 1))
        self.position = goal

    def _find_good(self, first: int, count: int) -> int | None:
        """Return the first record of first..first+count-1 that stands whole in its slot, None if none does."""
        end = first + count
        while first < end:
            slot = first % self._capacity
            here = min(end - first, self._capacity - slot, MOST_READ_RECORDS)
            body = self._ring.read_records(slot, here)
            lap = lap_of(first, self._capacity)
            firsts, lasts = body[::RECORD_BYTES], body[RECORD_BYTES - 1 :: RECORD_BYTES]
            found = firsts.find(lap)
            while found >= 0 and lasts[found] != lap:
                found = firsts.find(lap, found + 1)
            if found >= 0:
                return first + found
            first += here
        return None


def _count_good(body: bytes, lap: int) -> int:
    """Return how many records at the beginning carry `lap` in their first and their last byte."""
    mark = bytes([lap])
    firsts, lasts = body[::RECORD_BYTES], body[RECORD_BYTES - 1 :: RECORD_BYTES]
    return min(len(firsts) - len(firsts.lstrip(mark)), len(lasts) - len(lasts.lstrip(mark)))
