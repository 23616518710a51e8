from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from collector.batcher import Batcher
from collector.decode import DecodedFrame, decode
from collector.epochs import EpochBook
from collector.errors import MalformedBatchError
from wire_examples import EPOCH, START_UNIX_NS, FakeSink, a_frame


def decoded(first: int, count: int = 10) -> DecodedFrame:
    return decode(a_frame(first, first=first, count=count), EpochBook(), now_ns=START_UNIX_NS)


@asynccontextmanager
async def running(sink: FakeSink, **settings: float) -> AsyncIterator[Batcher]:
    batcher = Batcher(sink, **{"interval_seconds": 0.01, **settings})  # type: ignore[arg-type]  # whole numbers among them
    task = asyncio.create_task(batcher.run())
    yield batcher
    sink.gate.set()
    sink.broken = False
    await batcher.drain()
    await asyncio.wait_for(task, 20)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def test_frames_of_one_interval_become_one_batch() -> None:
    sink = FakeSink()
    async with running(sink, interval_seconds=0.3) as batcher:
        saved = [await batcher.add(decoded(first), f"n{first}") for first in (0, 10, 20)]
        await asyncio.gather(*saved)

    assert len(sink.batches) == 1
    assert sorted(record for _, record in sink.rows()) == list(range(30))
    assert sink.batches[0].nodes == {"n0", "n10", "n20"}


async def test_frame_is_saved_only_after_its_write_returned() -> None:
    sink = FakeSink()
    sink.gate.clear()
    async with running(sink) as batcher:
        saved = await batcher.add(decoded(0), "n")
        await asyncio.sleep(0.1)
        assert not saved.done()

        sink.gate.set()

        await asyncio.wait_for(saved, 20)
    assert sink.rows() == [(EPOCH, record) for record in range(10)]


async def test_failed_write_is_tried_again_and_nothing_is_saved_meanwhile() -> None:
    sink = FakeSink()
    sink.broken = True
    async with running(sink) as batcher:
        saved = await batcher.add(decoded(0), "n")
        await until(lambda: sink.failures >= 2)
        assert not saved.done()
        assert batcher.last_error == "the store is away"

        sink.broken = False

        await asyncio.wait_for(saved, 20)
        assert batcher.last_error == ""
    assert len(sink.rows()) == 10


async def test_frame_whose_rows_no_store_takes_costs_no_other_frame() -> None:
    sink = FakeSink()
    sink.refuses = {35}
    async with running(sink, interval_seconds=0.1) as batcher:
        saved = [await batcher.add(decoded(first), "n") for first in range(0, 70, 10)]

        answers = await asyncio.wait_for(asyncio.gather(*saved, return_exceptions=True), 20)

        later = await batcher.add(decoded(70), "n")
        await asyncio.wait_for(later, 20)
    assert [isinstance(answer, MalformedBatchError) for answer in answers] == [at == 3 for at in range(7)]
    assert {record for _, record in sink.rows()} == set(range(80)) - set(range(30, 40))


async def test_full_batcher_takes_nothing_until_something_is_written() -> None:
    sink = FakeSink()
    sink.gate.clear()
    async with running(sink, max_waiting_rows=20) as batcher:
        await batcher.add(decoded(0), "n")
        await batcher.add(decoded(10), "n")
        third = asyncio.create_task(batcher.add(decoded(20), "n"))
        await asyncio.sleep(0.1)
        assert not third.done()

        sink.gate.set()

        await asyncio.wait_for(await third, 20)
    assert len(sink.rows()) == 30


async def test_many_rows_do_not_wait_for_the_interval() -> None:
    sink = FakeSink()
    async with running(sink, interval_seconds=3600.0, max_batch_rows=20) as batcher:
        for first in range(0, 50, 10):
            await batcher.add(decoded(first), "n")
        await until(lambda: sink.batches)

        assert sink.batches[0].n_rows < 50


async def test_drain_writes_what_waits() -> None:
    sink = FakeSink()
    async with running(sink, interval_seconds=3600.0) as batcher:
        saved = await batcher.add(decoded(0), "n")

    assert saved.done()
    assert len(sink.rows()) == 10


async def test_stream_that_went_away_does_not_stop_the_others() -> None:
    sink = FakeSink()
    async with running(sink, interval_seconds=0.1) as batcher:
        gone = await batcher.add(decoded(0), "n")
        stays = await batcher.add(decoded(10), "n")
        gone.cancel()

        await asyncio.wait_for(stays, 20)
    assert len(sink.rows()) == 20
