"""The loop that watches every running job: each second, what is new goes through the detectors into incidents."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Engine as RecordsEngine
from sqlalchemy import Select, or_, select
from sqlalchemy.exc import SQLAlchemyError

from analytics.incidents.book import Book
from analytics.incidents.lifecycle import Rules
from analytics.panel import Detector, Panel
from analytics.roster import read_roster, signature_of
from analytics.run_watch import RunWatch, Telemetry, Tools, end_run
from collector.errors import StoreUnreachableError
from collector.store.records import Incident, Run
from collector.store.records.incident import FIRING
from collector.store.records.run import RUNNING
from collector.store.records.session import UnitOfWork

logger = logging.getLogger(__name__)

RECORDS = "records store"
TELEMETRY = "telemetry store"
TICK_SECONDS = 1.0
# After a visit that took t seconds a run rests for REST_SHARE * t: a job too large to be judged every second is judged
# less often, and the engine stays below a third of a core for each run.
REST_SHARE = 2.0
ROSTER_SECONDS = 30.0  # coordinates may become known without any rank starting or ending, so rosters are read again
QUIET_SECONDS = 30.0  # a run that nobody has heard of for this long is asked for again only when it is heard


@dataclass(slots=True)
class _Watched:
    watch: RunWatch
    signature: tuple[object, ...]
    roster_read_at: float
    heard: datetime
    heard_at: float
    visited_at: float = float("-inf")
    rests_until: float = float("-inf")


class _Troubles:
    """Says once that something is wrong, and once that it is over."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def begins(self, what: str, error: Exception, *, is_ours: bool = False) -> None:
        if what in self._told:
            return
        self._told.add(what)
        cause = str(error).splitlines()[0] if str(error) else type(error).__name__
        logger.warning("%s: %s; will keep trying", what, cause, exc_info=error if is_ours else None)

    def ends(self, what: str) -> None:
        if what in self._told:
            self._told.discard(what)
            logger.info("%s: all right again", what)


class Engine:
    """Watches all running runs. Killed at any moment and started again, it goes on from what the stores hold.

    Args:
        records: the records store.
        telemetry: the telemetry store's questions.
        detectors: run on every window.
        book: where incidents are kept.
        steps_kept: how many newest steps of a run detectors are given.
        rules: how long suspects must hold and be gone.
        monotonic: gives seconds for rests and grace.
    """

    def __init__(
        self,
        *,
        records: RecordsEngine,
        telemetry: Telemetry,
        detectors: Sequence[Detector],
        book: Book,
        steps_kept: int,
        rules: Rules | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._records = records
        self.panel = Panel(detectors)
        self._tools = Tools(telemetry, self.panel, book, steps_kept, rules or Rules())
        self._monotonic = monotonic
        self._watched: dict[str, _Watched] = {}
        self._troubles = _Troubles()
        self._is_stopping: Callable[[], bool] = lambda: False

    def run(self, stop: threading.Event, *, tick_seconds: float = TICK_SECONDS) -> None:
        """Tick until `stop` is set; a tick ends early then, between two looks."""
        self._is_stopping = stop.is_set
        while not stop.is_set():
            self.tick()
            stop.wait(tick_seconds)

    def tick(self) -> int:
        """Visit every run once and return how many looks were taken; a store that is away is tried at the next tick."""
        try:
            with UnitOfWork(self._records) as work:
                runs = work.session.execute(_runs_of_interest(self._watched)).all()
        except SQLAlchemyError as error:
            self._troubles.begins(RECORDS, error)
            return 0
        self._troubles.ends(RECORDS)
        for run_id in self._watched.keys() - {run.id for run in runs}:
            del self._watched[run_id]
        looks = 0
        for run in runs:
            if self._is_stopping():
                break
            looks += self._contained(run.id, run.state, run.last_seen_at)
        return looks

    def _contained(self, run_id: str, state: str, last_seen_at: datetime) -> int:
        """Visit one run; what fails is told once and tried again at the next tick, and does not stop other runs."""
        trouble = f"run {run_id}"
        try:
            looks = self._visit(run_id, last_seen_at) if state == RUNNING else self._finish(run_id)
        except StoreUnreachableError as error:
            self._troubles.begins(TELEMETRY, error)
        except SQLAlchemyError as error:
            self._troubles.begins(trouble, error)
        except Exception as error:
            self._troubles.begins(trouble, error, is_ours=True)
        else:
            self._troubles.ends(trouble)
            if looks:
                self._troubles.ends(TELEMETRY)
            return looks
        return 0

    def _visit(self, run_id: str, last_seen_at: datetime) -> int:
        now = self._monotonic()
        watched = self._followed(run_id, last_seen_at, now)
        if watched is None or now < watched.rests_until or watched.visited_at - watched.heard_at > QUIET_SECONDS:
            return 0
        looks = watched.watch.visit(now=now, is_stopping=self._is_stopping)
        watched.visited_at = now
        watched.rests_until = self._monotonic() + REST_SHARE * (self._monotonic() - now)
        return looks

    def _finish(self, run_id: str) -> int:
        """Take the last look at a run that ended, then close its incidents."""
        looks = 0
        watched = self._watched.get(run_id)
        if watched is None:
            end_run(run_id, self._tools)
        else:
            now = self._monotonic()
            watched.signature = ()
            self._followed(run_id, watched.heard, now)
            looks = watched.watch.visit(now=now, is_stopping=self._is_stopping)
            if self._is_stopping():
                return looks  # the last look was not taken; the next process finds the run ended, and closes it
            watched.watch.end()
            del self._watched[run_id]
        return looks

    def _followed(self, run_id: str, last_seen_at: datetime, now: float) -> _Watched | None:
        """Return the run under watch with its roster of now; None while none of its ranks is known."""
        watched = self._watched.get(run_id)
        with UnitOfWork(self._records) as work:
            signature = signature_of(work.session, run_id)
            is_fresh = (
                watched is not None and watched.signature == signature and now - watched.roster_read_at < ROSTER_SECONDS
            )
            roster = None if is_fresh else read_roster(work.session, run_id)
        if watched is None:
            if roster is None:
                return None
            watch = RunWatch(run_id, roster, self._tools)
            watched = self._watched[run_id] = _Watched(watch, signature, now, last_seen_at, now)
        elif roster is not None:
            watched.watch.follow(roster)
            watched.signature, watched.roster_read_at = signature, now
        if last_seen_at != watched.heard:
            watched.heard, watched.heard_at = last_seen_at, now
        return watched


def _runs_of_interest(watched: Iterable[str]) -> Select[str, str, datetime]:
    with_open_incidents = select(Incident.run_id).where(Incident.state == FIRING)
    return select(Run.id, Run.state, Run.last_seen_at).where(
        or_(Run.state == RUNNING, Run.id.in_(list(watched)), Run.id.in_(with_open_incidents))
    )
