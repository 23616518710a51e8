from __future__ import annotations

import asyncio

from dashboard.pulse import Pulse


async def test_a_listener_hears_everything_first_and_then_only_what_moved() -> None:
    counters = {"a": "1", "b": "1"}
    pulse = Pulse(lambda: dict(counters), tick_seconds=0.01)

    queue = pulse.listen()
    heard = [await asyncio.wait_for(queue.get(), 5), await asyncio.wait_for(queue.get(), 5)]
    counters["b"] = "2"
    heard.append(await asyncio.wait_for(queue.get(), 5))
    pulse.leave(queue)

    assert heard == [{}, {"a": "1", "b": "1"}, {"b": "2"}]


async def test_a_late_listener_is_told_the_whole_state_at_once() -> None:
    pulse = Pulse(lambda: {"a": "1"}, tick_seconds=0.01)
    early = pulse.listen()
    while await asyncio.wait_for(early.get(), 5) == {}:
        pass

    late = pulse.listen()

    assert late.get_nowait() == {"a": "1"}
    pulse.leave(early)
    pulse.leave(late)


async def test_nobody_listening_means_no_questions() -> None:
    questions = []

    def look() -> dict[str, str]:
        questions.append(1)
        return {}

    pulse = Pulse(look, tick_seconds=0.01)
    queue = pulse.listen()
    await asyncio.sleep(0.05)
    pulse.leave(queue)
    await asyncio.sleep(0.05)
    before = len(questions)
    await asyncio.sleep(0.1)

    assert before > 0
    assert len(questions) == before


async def test_a_store_that_fails_once_is_asked_again() -> None:
    troubles = [RuntimeError("locked")]

    def look() -> dict[str, str]:
        if troubles:
            raise troubles.pop()
        return {"a": "1"}

    pulse = Pulse(look, tick_seconds=0.01)
    queue = pulse.listen()
    await asyncio.wait_for(queue.get(), 5)

    assert await asyncio.wait_for(queue.get(), 5) == {"a": "1"}
    pulse.leave(queue)
