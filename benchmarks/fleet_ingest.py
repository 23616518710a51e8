"""`python -m benchmarks.fleet_ingest`: how fast a simulated job's records reach one machine's store; whether all do.

A collector and an embedded store are started on free ports in a temporary directory; the fleet streams into them
unpaced. All of them share this machine's cores.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from dashboard.demonstration.verification import count_stored
from dashboard.supervision.addresses import Addresses
from dashboard.supervision.server_parts import Server

RUN = "benchmark"


def main() -> int:
    """Measure, print, and return 1 when a record was lost or doubled."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fleet_ingest", description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024, help="size of the job (default %(default)s)")
    parser.add_argument("--steps", type=int, default=200, help="how many steps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the job (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="print nothing but the last line")
    args = parser.parse_args()
    result = measure(args.ranks, args.steps, args.seed, say=(lambda line: None) if args.json else print)
    print(json.dumps(result))
    return 0 if result["lost"] == result["doubled"] == 0 else 1


def measure(ranks: int, steps: int, seed: int, *, say: Any = print) -> dict[str, Any]:
    """Return the figures of one run."""
    with tempfile.TemporaryDirectory(prefix="flightwatch-bench-") as folder:
        addresses = Addresses.on_free_ports()
        server = Server(addresses, Path(folder), say)
        try:
            server.start_stores(lambda: False)
            server.start_parts(("collector",), lambda: False)
            truth = _stream(
                addresses.collector, server.environment, ["--ranks", str(ranks), "--steps", str(steps)], seed
            )
            stored = count_stored(server.settings.store_url, RUN)
        finally:
            server.stop()
    return {
        "benchmark": "fleet_ingest",
        "ranks": ranks,
        "steps": steps,
        "records": truth["records_written"],
        "records_acknowledged": truth["records_acknowledged"],
        "records_per_second": truth["records_per_second"],
        "seconds": truth["seconds"],
        "lost": truth["records_written"] - stored.numbers,
        "doubled": stored.rows - stored.numbers,
        "fleet_cpu_seconds": truth["cpu_seconds"],
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }


def _stream(collector: str, environment: dict[str, str], size: list[str], seed: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "fleet", "--fast", "--collector", collector, "--run-id", RUN, "--seed", str(seed)]
    done = subprocess.run(
        [*command, *size, "--drain-seconds", "120"], env=environment, capture_output=True, text=True, check=False
    )
    if not done.stdout:
        raise SystemExit(f"the fleet failed: {done.stderr.strip()}")
    truth: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return truth


if __name__ == "__main__":
    sys.exit(main())
