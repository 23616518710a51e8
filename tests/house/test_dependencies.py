"""What the code imports is declared, and what is declared is used: no part works by another's dependency alone."""

from __future__ import annotations

import ast
import re
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
import tomllib

REPOSITORY = Path(__file__).parents[2]
OURS = {"flightwatch", "collector", "analytics", "dashboard", "fleet"}
SERVER_ROOTS = ("collector", "analytics", "dashboard", "fleet", "migrations")
# Found at run time where they are installed, and never required (design: the agent is light).
AGENT_FINDS = {"torch"}
USED_UNIMPORTED = {
    "psycopg": "SQLAlchemy loads it for postgresql+psycopg:// URLs",
    "flightwatch": "the agent",
}


def _imports(root: str) -> set[str]:
    found: set[str] = set()
    for path in (REPOSITORY / root).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                found.update(alias.name.split(".")[0] for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.split(".")[0])
    return found - set(sys.stdlib_module_names) - OURS


def _declared(project: str) -> set[str]:
    texts = tomllib.loads((REPOSITORY / project).read_text())["project"]["dependencies"]
    return {_normal(re.split(r"[\[<>=~! ]", text)[0]) for text in texts}


def _normal(distribution: str) -> str:
    return re.sub(r"[-_.]+", "-", distribution).lower()


_PROVIDERS = cache(packages_distributions)  # a second's look at all that is installed


def _distributions(module: str) -> set[str]:
    return {_normal(name) for name in _PROVIDERS().get(module, [module])}


@pytest.mark.parametrize(
    ("roots", "project", "found_at_run_time"),
    [(SERVER_ROOTS, "pyproject.toml", set()), (("agent/flightwatch",), "agent/pyproject.toml", AGENT_FINDS)],
    ids=["server", "agent"],
)
def test_every_import_is_declared(roots: tuple[str, ...], project: str, found_at_run_time: set[str]) -> None:
    declared = _declared(project)
    imported = {module for root in roots for module in _imports(root)} - found_at_run_time

    assert sorted(module for module in imported if not _distributions(module) & declared) == []


def test_every_dependency_of_the_server_is_used() -> None:
    used = {name for root in SERVER_ROOTS for module in _imports(root) for name in _distributions(module)}

    assert sorted(_declared("pyproject.toml") - used - set(USED_UNIMPORTED)) == []


def test_the_agent_needs_grpc_and_protobuf_alone() -> None:
    assert _declared("agent/pyproject.toml") == {"grpcio", "protobuf"}
