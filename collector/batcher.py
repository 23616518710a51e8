"""Many streams, one insert per table: gathers frames for a short while, writes them together, says which are safe."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Protocol

from collector.batch import Batch, join
from collector.decode import DecodedFrame
from collector.errors import MalformedBatchError, RefusedRowsError

logger = logging.getLogger(__name__)

# An insert costs the store milliseconds and a part on disk whatever its size; 200 ms keeps parts few and pages fresh.
INTERVAL_SECONDS = 0.2
MAX_BATCH_ROWS = 200_000
# About 60 bytes a row as columns: 2 M rows are 120 MB. Beyond it streams are not read; forwarders keep their frames.
MAX_WAITING_ROWS = 2_000_000
FIRST_RETRY_SECONDS = 0.2
MAX_RETRY_SECONDS = 5.0


class Sink(Protocol):
    """Where batches go. `write` blocks until all of the batch is on disk; a repeated write does no harm."""

    def write(self, batch: Batch) -> None:
        """Write a batch, or raise and leave it to be written again; RefusedRowsError: that would not help."""


@dataclass(frozen=True, slots=True)
class _Waiting:
    frame: DecodedFrame
    node: str
    saved: asyncio.Future[None]


class Batcher:
    """Holds what is not yet on disk, bounded, in memory. Nothing is dropped: a failed write is tried again, for ever.

    Rows that a store refuses for what they hold are found by halving the batch; the frame that holds them is the only
    one that is not saved, and its future raises MalformedBatchError.

    `run` is the one task that writes; `add` may be called from any number of streams.
    """

    def __init__(
        self,
        sink: Sink,
        *,
        interval_seconds: float = INTERVAL_SECONDS,
        max_batch_rows: int = MAX_BATCH_ROWS,
        max_waiting_rows: int = MAX_WAITING_ROWS,
    ) -> None:
        self._sink = sink
        self._interval_seconds = interval_seconds
        self._max_batch_rows = max_batch_rows
        self._max_waiting_rows = max_waiting_rows
        self._waiting: list[_Waiting] = []
        self._waiting_rows = 0  # of the list and of the batch being written
        self._listed_rows = 0  # of the list alone
        self._changed = asyncio.Condition()
        self._draining = False
        self.last_error = ""

    async def add(self, frame: DecodedFrame, node: str) -> asyncio.Future[None]:
        """Take a frame over, once there is room; the future is done when all of it is on disk."""
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        async with self._changed:
            await self._changed.wait_for(lambda: self._waiting_rows < self._max_waiting_rows)
            self._waiting.append(_Waiting(frame, node, saved))
            self._waiting_rows += max(frame.n_rows, 1)
            self._listed_rows += frame.n_rows
            self._changed.notify_all()
        return saved

    async def run(self) -> None:
        """Write batches until `drain`, and what is left then."""
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._draining or self._waiting)
                if not self._waiting:
                    return
            await self._gather()
            taken = self._take()
            await self._write(taken)
            async with self._changed:
                self._waiting_rows -= sum(max(one.frame.n_rows, 1) for one in taken)
                self._changed.notify_all()
            for one in taken:
                if not one.saved.done():
                    one.saved.set_result(None)

    async def drain(self) -> None:
        """Let `run` return once everything taken over is written."""
        async with self._changed:
            self._draining = True
            self._changed.notify_all()

    async def _gather(self) -> None:
        """Wait for more to come, for one interval or until a batch is full."""

        def is_full() -> bool:
            return self._draining or self._listed_rows >= self._max_batch_rows

        async with self._changed:
            try:
                await asyncio.wait_for(self._changed.wait_for(is_full), self._interval_seconds)
            except TimeoutError:
                return

    def _take(self) -> list[_Waiting]:
        rows = count = 0
        while count < len(self._waiting) and rows < self._max_batch_rows:
            rows += self._waiting[count].frame.n_rows
            count += 1
        self._listed_rows -= rows
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return taken

    async def _write(self, taken: list[_Waiting]) -> None:
        try:
            await self._write_until_taken(taken)
        except RefusedRowsError as error:
            if len(taken) > 1:
                half = len(taken) // 2
                await self._write(taken[:half])
                await self._write(taken[half:])
                return
            logger.error("a frame of %s is refused: %s", taken[0].node, error)
            if not taken[0].saved.done():
                taken[0].saved.set_exception(MalformedBatchError("frame", str(error)))

    async def _write_until_taken(self, taken: list[_Waiting]) -> None:
        batch = await asyncio.to_thread(join, [one.frame for one in taken], {one.node for one in taken})
        delay = FIRST_RETRY_SECONDS
        while True:
            try:
                await asyncio.to_thread(self._sink.write, batch)
            except RefusedRowsError:
                raise
            except Exception as error:
                # the loop's top: whatever the stores say, the rows stay here unacknowledged and are tried again
                if str(error) != self.last_error:
                    self.last_error = str(error)
                    logger.warning("a batch of %d rows waits: %s", batch.n_rows, error)
            else:
                if self.last_error:
                    logger.warning("the stores take batches again")
                    self.last_error = ""
                return
            await asyncio.sleep(delay)
            delay = min(2 * delay, MAX_RETRY_SECONDS)
