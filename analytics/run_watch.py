"""One running job under watch: its newest steps, what the detectors say of them, and the incidents that follow."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from analytics.findings import Finding
from analytics.incidents import lifecycle
from analytics.incidents.book import Book, StaleBookError
from analytics.incidents.lifecycle import Look, Rules, Track
from analytics.live_window import LiveWindow
from analytics.panel import Panel
from analytics.progress import NOTHING, Progress
from analytics.roster import Roster

logger = logging.getLogger(__name__)

LOOK_STEPS = 4  # at most this many new steps go by without a look, so that verdicts do not depend on the loop's timing,
LOOKS_PER_VISIT = 3  # unless there is a backlog of more than this many looks: then each takes more steps
LATE_SECONDS = 5.0  # steps that were judged incomplete are asked for again at most this often


class Telemetry(Protocol):
    """What the engine asks of the telemetry store."""

    def rank_steps(self, run: str, *, first_step: int, since_ns: int) -> pa.Table:
        """Return rank and last_step of the ranks that ended a step from `first_step` on, begun since `since_ns`."""

    def step_phases(self, run: str, *, first_step: int, last_step: int) -> pa.Table:
        """Return rank, step, micro, phase, seconds, start_ns, n."""


@dataclass(frozen=True, slots=True)
class Tools:
    """What every watch works with."""

    telemetry: Telemetry
    panel: Panel
    book: Book
    steps_kept: int
    rules: Rules


class RunWatch:
    """Watches one run from one visit to the next. All its state can be rebuilt from the stores."""

    def __init__(self, run_id: str, roster: Roster, tools: Tools) -> None:
        self._run_id = run_id
        self._tools = tools
        self._tracks: tuple[Track, ...] | None = None
        self._begin(roster)

    def _begin(self, roster: Roster) -> None:
        self._roster = roster
        self._window = LiveWindow(self._run_id, roster.topology, steps_kept=self._tools.steps_kept)
        self._progress = Progress()
        self._filled = np.full(len(roster.topology.ranks), NOTHING, dtype=np.int64)
        self._late_asked_at = float("-inf")

    def follow(self, roster: Roster) -> None:
        """Take over a changed roster: a new attempt starts an empty window, else ranks keep what they have."""
        old = self._roster.topology.ranks
        if roster.attempt != self._roster.attempt or self._is_restarted(roster):
            self._begin(roster)
            return
        self._roster = roster
        self._window.follow(roster.topology)
        filled = np.full(len(roster.topology.ranks), NOTHING, dtype=np.int64)
        stayed = np.isin(roster.topology.ranks, old)
        filled[stayed] = self._filled[np.searchsorted(old, roster.topology.ranks[stayed])]
        self._filled = filled

    def _is_restarted(self, roster: Roster) -> bool:
        """Return whether most ranks are new processes: a restart that did not count its attempts."""
        old = self._roster
        stayed = np.isin(roster.topology.ranks, old.topology.ranks)
        before = old.started_unix_ns[np.searchsorted(old.topology.ranks, roster.topology.ranks[stayed])]
        return bool(2 * (roster.started_unix_ns[stayed] != before).sum() > len(roster.topology.ranks))

    def visit(self, *, now: float, is_stopping: Callable[[], bool] = lambda: False) -> int:
        """Look at what is new, and return how many looks that took.

        Args:
            now: monotonic seconds.
            is_stopping: asked before each look, which may take seconds; what is left is looked at after the restart.
        """
        last_steps = self._last_steps()
        complete = self._progress.newest_complete(last_steps, self._roster.is_live, now=now)
        if complete == NOTHING:
            return 0
        looks = 0
        for first, last in self._spans(last_steps, complete, now):
            if is_stopping():
                break
            phases = self._tools.telemetry.step_phases(self._run_id, first_step=first, last_step=last)
            self._window.merge(phases)
            is_filled = self._filled >= first - 1
            reached = np.minimum(last_steps, last)
            self._filled[is_filled] = np.maximum(self._filled, reached)[is_filled]
            if phases.num_rows:
                self._look()
                looks += 1
        return looks

    def end(self) -> None:
        """Resolve what is open, because the run is over."""
        end_run(self._run_id, self._tools, newest_step=self._window.newest_step)

    def _last_steps(self) -> NDArray[np.int64]:
        ranks = self._roster.topology.ranks
        table = self._tools.telemetry.rank_steps(
            self._run_id,
            first_step=self._window.oldest_step or 0,
            # what was written before the newest processes began belongs to an earlier attempt, and may be farther
            since_ns=int(self._roster.started_unix_ns.min()),
        )
        last = np.full(len(ranks), NOTHING, dtype=np.int64)
        rank = table["rank"].to_numpy().astype(np.int64)
        row = np.searchsorted(ranks, rank)
        is_known = (row < len(ranks)) & (ranks[np.minimum(row, len(ranks) - 1)] == rank)
        last[row[is_known]] = table["last_step"].to_numpy().astype(np.int64)[is_known]
        return last

    def _spans(self, last_steps: NDArray[np.int64], complete: int, now: float) -> Iterator[tuple[int, int]]:
        """Yield spans of steps to ask for, in order; the first begins with late steps, if any."""
        newest = self._window.newest_step
        oldest_kept = complete - self._tools.steps_kept + 1
        if newest is None or newest < oldest_kept:
            first = max(0, oldest_kept)
            self._filled = np.maximum(self._filled, first - 1)
            yield first, complete
            return
        self._filled = np.maximum(self._filled, (self._window.oldest_step or 0) - 1)
        is_behind = np.minimum(last_steps, complete) > self._filled
        if not is_behind.any():
            return
        first = int(self._filled[is_behind].min()) + 1
        if first <= newest:
            if now - self._late_asked_at >= LATE_SECONDS:
                self._late_asked_at = now
            else:
                first = newest + 1
        if complete > newest:
            stride = max(LOOK_STEPS, -(-(complete - newest) // LOOKS_PER_VISIT))
            for last in (*range(newest + stride, complete, stride), complete):
                yield first, last
                first = last + 1
        elif first <= newest:
            yield first, newest

    def _look(self) -> None:
        window = self._window.window()
        findings, blind = self._tools.panel.findings(window)
        step = int(window.steps[-1])
        look = Look(step=step, findings=findings, node_sizes=self._roster.node_sizes, blind=blind)
        tracks, events = lifecycle.advance(
            self._known_tracks(), look, new_id=self._tools.book.new_id, rules=self._tools.rules
        )
        try:
            self._tools.book.write(self._run_id, events)
        except StaleBookError as error:
            logger.warning("%s; reading the incidents again", error)
            self._tracks = None
            return
        except Exception:
            # whether it was committed is unknown, and only the store can tell
            self._tracks = None
            raise
        self._tracks = tracks
        for event in events:
            _tell(self._run_id, event)

    def _known_tracks(self) -> tuple[Track, ...]:
        if self._tracks is None:
            self._tracks = self._tools.book.load(self._run_id)
        return self._tracks


def end_run(run_id: str, tools: Tools, *, newest_step: int | None = None) -> None:
    """Resolve the open incidents of a run that is over; `newest_step` is None where it was not watched to its end."""
    tracks = tools.book.load(run_id)
    if newest_step is None:
        newest_step = max((track.last_seen_step for track in tracks), default=0)
    events = lifecycle.end(tracks, newest_step)
    tools.book.write(run_id, events, is_new_data=False)
    for event in events:
        _tell(run_id, event)


def _tell(run_id: str, event: lifecycle.Event) -> None:
    finding: Finding = event.track.finding
    match event:
        case lifecycle.Opened(track) if not track.is_note:
            logger.warning("run %s step %d: incident %s: %s", run_id, track.opened_step, track.id, finding.summary)
        case lifecycle.Resolved(track, step, reason):
            logger.info("run %s step %d: incident %s resolved (%s)", run_id, step, track.id, reason)
