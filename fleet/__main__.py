"""`python -m fleet`: stream a simulated training job to a collector and print the truth about it as JSON."""

from __future__ import annotations

import argparse
import json
import logging
import os
import secrets
import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from fleet.clock import Clock, FastClock, WallClock
from fleet.faults import Fault, FaultSchedule, slow_node, slow_node_loop
from fleet.job import DEFAULT_MICRO_BATCHES, Job, JobPlan
from fleet.topology import Topology, topology_for
from flightwatch.errors import FlightwatchError
from flightwatch.forward.link import Link
from flightwatch.wire import flightwatch_pb2 as wire

DEFAULT_COLLECTOR = "127.0.0.1:7460"
BACKDATED_STEP_SECONDS = 2.0  # a fast job's steps lie in the past, even when slow ones make them longer


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code: 0, 1 when something was not acknowledged, 2 for bad input."""
    parser = _parser()
    logging.basicConfig(format="fleet: %(message)s", level=logging.WARNING)
    try:
        return _stream(parser.parse_args(argv))
    except FlightwatchError as error:
        print(f"fleet: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m fleet", description=__doc__)
    add = parser.add_argument
    add("--collector", default=os.environ.get("FLIGHTWATCH_COLLECTOR", DEFAULT_COLLECTOR), help="HOST:PORT[,HOST:PORT]")
    add("--ranks", type=int, help="size of the job; sets dp, and pp and tp unless they divide it (default 1024)")
    add("--dp", type=int, help="data-parallel replicas (default 32)")
    add("--pp", type=int, default=4, help="pipeline stages (default %(default)s)")
    add("--tp", type=int, default=8, help="tensor-parallel width (default %(default)s)")
    add("--micro-batches", type=int, default=DEFAULT_MICRO_BATCHES, help="per step and replica (default %(default)s)")
    add("--steps", type=int, help="how many steps (default: until interrupted; needed with --fast)")
    add("--step-seconds", type=float, default=1.0, help="length of a healthy step (default %(default)s)")
    add("--seed", type=int, default=0, help="of all noise and of the loop's choice of nodes (default %(default)s)")
    add("--slow-node", metavar="NAME", help="slow this node's compute, such as node-017")
    add("--slow-factor", type=float, default=1.4, help="how many times as long it takes (default %(default)s)")
    add("--slow-steps", metavar="A:B", help="from step A up to, but not with, step B (default: the whole job)")
    add(
        "--slow-loop",
        metavar="H:S:R",
        help="after H healthy steps one node is slow for S steps, R healthy, the next ...",
    )
    add("--run-id", help="id of the run (default: fleet- and the time)")
    add("--run-name", default="demo", help="its name (default %(default)s)")
    add("--fast", action="store_true", help="do not pace the steps: a load source, with times in the past")
    add("--events", action="store_true", help="print a JSON line at each injection and healing")
    add("--drain-seconds", type=float, default=30.0, help="wait for acknowledgements at the end (default %(default)s)")
    return parser


def _stream(args: argparse.Namespace) -> int:
    topology = _topology(args)
    plan = JobPlan(
        topology,
        run=args.run_id or time.strftime("fleet-%Y%m%d-%H%M%S"),
        run_name=args.run_name,
        seed=args.seed,
        step_seconds=_positive(args.step_seconds, "--step-seconds"),
        n_micro=int(_positive(args.micro_batches, "--micro-batches")),
    )
    faults = _faults(args, topology)
    events = FaultEvents(enabled=args.events)
    # Never seeded: a second run under the same id must not collide with the first one's rows.
    epochs = np.frombuffer(secrets.token_bytes(8 * topology.n_ranks), dtype=np.uint64)
    job = Job(plan, faults, clock=_clock(args), epochs=epochs, on_step=events.step)
    refusals: list[str] = []
    link = Link(
        args.collector.split(","),
        forwarder=f"fleet-{secrets.token_hex(4)}",
        node="fleet",
        greeting=job.stream.greeting,
        on_refused=lambda frame, problem: _note_refusal(refusals, frame, problem),
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    began = time.monotonic()
    link.start()
    job.run(link, steps=args.steps, should_stop=stop.is_set)
    drained = link.wait_drained(args.drain_seconds)
    seconds = time.monotonic() - began
    link.close()
    print(json.dumps(_truth(plan, job, faults, refusals, seconds)), flush=True)
    if not drained:
        print(f"fleet: not everything was acknowledged by {args.collector}: {link.last_error}", file=sys.stderr)
    return 0 if drained and not refusals else 1


def _note_refusal(refusals: list[str], frame: wire.Frame, problem: str) -> None:
    refusals.append(problem)
    print(f"fleet: the collector refused frame {frame.frame}: {problem}", file=sys.stderr, flush=True)


class FaultEvents:
    """Prints a line when the set of acting faults changes."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._acting: tuple[Fault, ...] = ()

    def step(self, step: int, faults: tuple[Fault, ...]) -> None:
        """Take note of the faults that act in a step that begins."""
        if not self._enabled:
            return
        for fault in self._acting:
            if fault not in faults:
                print(json.dumps({"event": "healed", "step": step, **fault.to_json()}), flush=True)
        for fault in faults:
            if fault not in self._acting:
                print(json.dumps({"event": "injected", "step": step, **fault.to_json()}), flush=True)
        if step == 0:
            print(json.dumps({"event": "started", "step": step}), flush=True)
        self._acting = faults


def _truth(plan: JobPlan, job: Job, faults: FaultSchedule, refusals: list[str], seconds: float) -> dict[str, Any]:
    met = [fault.to_json() for fault in faults.met if fault.first_step < job.steps_done]
    acknowledged = job.stream.records_acknowledged
    return {
        "run": plan.run,
        "ranks": plan.topology.n_ranks,
        "nodes": plan.topology.n_nodes,
        "steps": job.steps_done,
        "seed": plan.seed,
        "faults": met,
        "records_written": job.stream.records_written,
        "records_acknowledged": acknowledged,
        "refusals": refusals,
        "seconds": round(seconds, 3),
        "records_per_second": round(acknowledged / seconds),
        "seconds_without_room": round(job.seconds_without_room, 3),
        "cpu_seconds": round(time.process_time(), 3),
    }


def _topology(args: argparse.Namespace) -> Topology:
    if args.ranks is not None and args.dp is not None:
        raise FlightwatchError("give --ranks or --dp, not both")
    if args.ranks is not None:
        return topology_for(args.ranks, pp=args.pp, tp=args.tp)
    return Topology(dp=32 if args.dp is None else args.dp, pp=args.pp, tp=args.tp)


def _clock(args: argparse.Namespace) -> Clock:
    if not args.fast:
        return WallClock()
    if args.steps is None:
        raise FlightwatchError("--fast needs --steps: it would never end")
    past_seconds = args.steps * args.step_seconds * BACKDATED_STEP_SECONDS
    return FastClock(time.time_ns() - round(past_seconds * 1e9))


def _faults(args: argparse.Namespace, topology: Topology) -> FaultSchedule:
    single: list[Fault] = []
    if args.slow_node:
        first, end = _numbers(args.slow_steps or "0:1000000000", 2, "--slow-steps A:B")
        single.append(slow_node(topology, args.slow_node, factor=args.slow_factor, first_step=first, last_step=end - 1))
    elif args.slow_steps:
        raise FlightwatchError("--slow-steps needs --slow-node")
    if not args.slow_loop:
        return FaultSchedule(single)
    healthy, slow, rest = _numbers(args.slow_loop, 3, "--slow-loop H:S:R")
    if slow < 1:
        raise FlightwatchError(f"--slow-loop H:S:R needs S of at least 1, not {slow}")
    loop = slow_node_loop(
        topology,
        healthy_steps=healthy,
        slow_steps=slow,
        rest_steps=rest,
        factor=args.slow_factor,
        seed=args.seed,
    )
    return FaultSchedule(single, loop)


def _numbers(text: str, count: int, what: str) -> list[int]:
    parts = text.split(":")
    if len(parts) != count or not all(part.isdigit() for part in parts):
        raise FlightwatchError(f"{what} takes {count} whole numbers with colons between them, not {text!r}")
    return [int(part) for part in parts]


def _positive(number: float, what: str) -> float:
    if not 0 < number < float("inf"):
        raise FlightwatchError(f"{what} has to be above 0, not {number}")
    return number


if __name__ == "__main__":
    sys.exit(main())
