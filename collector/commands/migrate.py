"""The verb `migrate`."""

from __future__ import annotations

import argparse

from collector.settings import Settings
from collector.store.migrate import check_all, migrate_all

HELP = "bring both stores to this version's schema"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare --check."""
    parser.add_argument("--check", action="store_true", help="change nothing; exit with 2 if a schema is another one")


def run(args: argparse.Namespace) -> int:
    """Migrate, or check."""
    settings = Settings.from_environment()
    if args.check:
        check_all(settings)
        print("both stores have this version's schema")
        return 0
    for done in migrate_all(settings):
        change = f"{done.before} -> {done.after}" if done.before != done.after else f"already at {done.after}"
        print(f"{done.store}: {change}")
    return 0
