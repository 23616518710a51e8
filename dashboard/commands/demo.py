"""`flightwatch demo`: `up` with data of its own, a simulated job, slow nodes, and the truth beside the verdicts."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from collector.settings import Settings
from collector.store.records.session import open_engine
from dashboard.commands.up import LOOK_SECONDS, ssh_hint, tell, usable_directory
from dashboard.demonstration.fault_rhythm import SLOW_FACTOR, FaultRhythm
from dashboard.demonstration.fleet_process import FleetProcess
from dashboard.demonstration.run_news import RunNews
from dashboard.demonstration.story import Story
from dashboard.demonstration.verification import count_stored
from dashboard.supervision.addresses import Addresses
from dashboard.supervision.server_parts import Server
from dashboard.supervision.stop_signals import StopSignals
from flightwatch.errors import FlightwatchError

HELP = "`up`, plus a simulated 1,024-rank job with a slow node"
DEFAULT_RANKS = 1024
LIVE_SECONDS = 120.0  # a demo whose ranks have not appeared by then is broken, and says so
PATIENCE_SECONDS = 120.0  # --once: how much longer than the rhythm an incident may take to close
# Where a real job's data go, and whom it wakes: the demo keeps away from both.
NOT_INHERITED = (
    "FLIGHTWATCH_STORE_URL",
    "FLIGHTWATCH_RECORDS_URL",
    "FLIGHTWATCH_COLLECTOR",
    "FLIGHTWATCH_DATA",
    "FLIGHTWATCH_PUBLIC_URL",
    "FLIGHTWATCH_WEBHOOK_URL",
    "FLIGHTWATCH_WEBHOOK_SECRET_FILE",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the verb's arguments."""
    add = parser.add_argument
    add("--ranks", type=int, default=DEFAULT_RANKS, help="size of the simulated job (default %(default)s)")
    add("--step-seconds", type=float, default=1.0, help="length of a healthy step (default %(default)s)")
    add("--rhythm", metavar="H:S:R", help="in steps: healthy, then again and again one node slow and a rest")
    add("--seed", type=int, default=0, help="of the noise and of which nodes are slow (default %(default)s)")
    add("--once", action="store_true", help="end after the first node was found, healed and its incident closed")
    add("--duration", type=float, metavar="S", help="end after S seconds")
    add(
        "--data",
        type=Path,
        metavar="DIR",
        help="keep the data here (default: a temporary directory, removed at the end)",
    )
    add("--port-base", type=int, metavar="N", help="dashboard on port N, collector on N+1, store on N+2")
    add("--json", action="store_true", help="print events as JSON lines; progress goes to stderr")


def run(args: argparse.Namespace) -> int:
    """Run the demo until SIGINT or SIGTERM; 0, or 1 when --once saw the slow node not found or records missing."""
    if not 0 < args.step_seconds < float("inf"):
        raise FlightwatchError(f"--step-seconds has to be above 0, not {args.step_seconds}")
    rhythm = FaultRhythm.parse(args.rhythm) if args.rhythm else FaultRhythm.for_steps_of(args.step_seconds)
    with contextlib.ExitStack() as stack:
        stop = stack.enter_context(StopSignals())
        data_dir = stack.enter_context(_data_directory(args.data))
        return Demo(args, rhythm, data_dir, stop).play()


@contextlib.contextmanager
def _data_directory(chosen: Path | None) -> Iterator[Path]:
    if chosen is not None:
        yield usable_directory(chosen)
        return
    # a process that is killed late may still write while the directory is being emptied
    with tempfile.TemporaryDirectory(prefix="flightwatch-demo-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


class Demo:
    """One demo, from the first port to the last process."""

    def __init__(self, args: argparse.Namespace, rhythm: FaultRhythm, data_dir: Path, stop: StopSignals) -> None:
        self._args = args
        self._rhythm = rhythm
        self._stop = stop
        self._say = functools.partial(tell, sys.stderr if args.json else sys.stdout)
        self._began = time.monotonic()
        environment = {key: value for key, value in os.environ.items() if key not in NOT_INHERITED}
        self._server = Server(self._addresses(environment), data_dir, self._say, environment)
        self._run = f"demo-{secrets.token_hex(3)}"
        self._url = f"http://{self._server.addresses.dashboard}"
        self._story = Story(
            self._say,
            functools.partial(print, flush=True) if args.json else None,
            monotonic=time.monotonic,
            incident_url=f"{self._url}/ui/incidents/",
        )
        self._summary: dict[str, Any] = {}

    def play(self) -> int:
        """Bring everything up, tell the story, take everything down, and return the exit code."""
        self._say(f"demo: starting; data in {self._server.data_dir}, logs in {self._server.log_dir}")
        try:
            self._server.start_stores(self._stop)
            self._server.start_parts(("collector",), self._stop)
            if not self._stop():
                self._stream()
        finally:
            self._server.stop()
        self._say("stopped")
        return 1 if self._has_failed() else 0

    def _stream(self) -> None:
        engine = open_engine(self._server.settings.records_url)
        fleet = FleetProcess(self._fleet_arguments(), self._server.environment, self._server.log_dir / "fleet.log")
        try:
            # the job streams already while these two import their libraries
            self._server.start_parts(("analytics", "dashboard"), self._stop)
            news = RunNews(engine, self._run)
            self._wait_live(fleet, news)
            self._watch(fleet, news)
        finally:
            truth = fleet.stop()
            engine.dispose()
        self._conclude(truth)

    def _addresses(self, environment: Mapping[str, str]) -> Addresses:
        base = self._args.port_base
        wanted = Addresses.of(Settings.from_environment(environment)) if base is None else Addresses.from_base(base)
        moved = wanted.moved_off_used_ports()
        for part in wanted.in_use():
            self._say(f"demo: {wanted.by_part()[part]} is in use; the {part} goes to {moved.by_part()[part]}")
        return moved

    def _fleet_arguments(self) -> list[str]:
        return [
            *("--collector", self._server.addresses.collector),
            *("--ranks", str(self._args.ranks)),
            *("--step-seconds", str(self._args.step_seconds)),
            *("--seed", str(self._args.seed)),
            *("--slow-factor", str(SLOW_FACTOR)),
            *("--slow-loop", str(self._rhythm)),
            *("--run-id", self._run),
            *("--run-name", "demo"),
        ]

    def _wait_live(self, fleet: FleetProcess, news: RunNews) -> None:
        deadline = time.monotonic() + LIVE_SECONDS
        while (live := news.live_ranks()) < self._args.ranks:
            self._look(fleet, news)
            if self._stop.wait(LOOK_SECONDS):
                return
            if time.monotonic() > deadline:
                raise FlightwatchError(
                    f"only {live} of {self._args.ranks} ranks are live; logs: {self._server.log_dir}"
                )
        seconds = round(time.monotonic() - self._began, 1)
        page = f"{self._url}/ui/runs/{self._run}"
        self._story.note({"event": "live", "run": self._run, "ranks": live, "url": page, "seconds": seconds})
        self._say(f"demo: {live:,} ranks are live, {seconds:.0f} s after the start; nodes will turn slow and heal")
        self._say(ssh_hint(self._server.addresses))
        self._say(f"open {page}   (Ctrl-C stops everything)")

    def _watch(self, fleet: FleetProcess, news: RunNews) -> None:
        args = self._args
        limit = args.duration
        if args.once:
            patience = self._rhythm.cycle_seconds(args.step_seconds) + PATIENCE_SECONDS
            limit = patience if limit is None else min(limit, patience)
        while not self._stop():
            self._look(fleet, news)
            if args.once and self._story.resolved:
                return
            if limit is not None and time.monotonic() - self._began > limit:
                return
            self._stop.wait(LOOK_SECONDS)

    def _look(self, fleet: FleetProcess, news: RunNews) -> None:
        self._server.supervisor.look()
        for event in fleet.events():
            self._story.truth(event)
        for change in news.changes():
            self._story.news(change)
        if fleet.exit_code is not None and not self._stop():
            raise FlightwatchError(f"the simulated job ended (exit code {fleet.exit_code}); log: {fleet.log_path}")

    def _conclude(self, truth: dict[str, Any]) -> None:
        story = self._story
        written = truth.get("records_written")
        stored = count_stored(self._server.settings.store_url, self._run)
        self._summary = {
            "event": "finished",
            "run": self._run,
            "records_written": written,
            "records_stored": stored.numbers,
            "records_doubled": stored.rows - stored.numbers,
            "found": story.found,
            "resolved": story.resolved,
            "false_alarms": story.false_alarms,
            "fleet": truth,
        }
        story.note(self._summary)
        if written is None:
            self._say("demo: the simulated job had to be killed, so its records cannot be counted")
        else:
            doubled = stored.rows - stored.numbers
            how = "each once" if not doubled else f"and {doubled:,} twice"
            self._say(f"demo: the job wrote {written:,} records; the store has {stored.numbers:,} of them, {how}")

    def _has_failed(self) -> bool:
        summary = self._summary
        if not self._args.once or not summary:
            return False
        is_complete = summary["records_written"] == summary["records_stored"] and summary["records_doubled"] == 0
        return not (is_complete and summary["resolved"] and not summary["false_alarms"])
