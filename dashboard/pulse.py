"""One look per second at what changed, told to every open page: counters only, never data."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

TICK_SECONDS = 1.0


class Pulse:
    """Counters per run, watched once for all sockets. Looks only while somebody listens.

    Example:
        async for changed in pulse.changes(): ...
    """

    def __init__(self, look: Callable[[], dict[str, str]], *, tick_seconds: float = TICK_SECONDS) -> None:
        self._look, self._tick_seconds = look, tick_seconds
        self._counters: dict[str, str] = {}
        self._listeners: set[asyncio.Queue[dict[str, str]]] = set()
        self._task: asyncio.Task[None] | None = None

    def listen(self) -> asyncio.Queue[dict[str, str]]:
        """Return a queue that receives what changed: first everything, then what moved. Give it back to `leave`."""
        queue: asyncio.Queue[dict[str, str]] = asyncio.Queue()
        queue.put_nowait(dict(self._counters))
        self._listeners.add(queue)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        return queue

    def leave(self, queue: asyncio.Queue[dict[str, str]]) -> None:
        """Stop telling `queue`."""
        self._listeners.discard(queue)

    async def _watch(self) -> None:
        while self._listeners:
            try:
                found = await asyncio.to_thread(self._look)
            except Exception:
                # the store may be away for a while; pages learn of it by their own questions
                logger.exception("cannot look for changes in the records store")
            else:
                changed = {run: text for run, text in found.items() if self._counters.get(run) != text}
                self._counters = found
                if changed:
                    for queue in self._listeners:
                        queue.put_nowait(changed)
            await asyncio.sleep(self._tick_seconds)
