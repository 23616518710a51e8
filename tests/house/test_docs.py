"""What the pages for people say is there is there: links, make targets, verbs, variables."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from flightwatch.cli import AGENT_VERBS, SERVER_VERBS

REPOSITORY = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("changes/*.md")]
    if ".venv" not in path.parts
)
CODE_ROOTS = ("agent/flightwatch", "collector", "analytics", "dashboard", "fleet", "migrations")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
VARIABLE = re.compile(r"\bFLIGHTWATCH(?:_[A-Z]+)*\b")


def _snippets(language: str) -> list[tuple[str, str]]:
    return [
        (str(page.relative_to(REPOSITORY)), body)
        for page in PAGES
        for found, body in FENCE.findall(page.read_text())
        if found == language
    ]


def _shell_lines() -> list[tuple[str, str]]:
    return [(page, line.strip()) for page, body in _snippets("sh") for line in body.splitlines()]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(REPOSITORY)))
def test_links_of_a_page_lead_somewhere(path: Path) -> None:
    targets = [
        target for target in LINK.findall(path.read_text()) if "://" not in target and not target.startswith("#")
    ]

    assert [target for target in targets if not (path.parent / target.split("#")[0]).exists()] == []


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    named = {
        (page, word)
        for page, line in _shell_lines()
        for word in re.findall(r"(?:^|&& )make ([a-z]+)", line.split("#")[0].strip())
    }

    assert named
    assert [(page, word) for page, word in named if word not in targets] == []


def test_the_makefile_has_every_target_of_the_house() -> None:
    targets = set(re.findall(r"^([a-z]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))

    assert {"setup", "demo", "test", "bench", "soak", "clean"} <= targets


def test_verbs_that_pages_name_exist() -> None:
    verbs = set(AGENT_VERBS) | set(SERVER_VERBS)
    named = {
        (page, word)
        for page, line in _shell_lines()
        for word in re.findall(r"(?:^|&& |srun )flightwatch ([a-z]+)", line)
    }

    assert named
    assert [(page, word) for page, word in named if word not in verbs] == []


def test_files_that_shell_snippets_name_exist() -> None:
    named = {
        (page, path)
        for page, line in _shell_lines()
        for path in re.findall(r"\b((?:examples|requirements|deploy|docs|benchmarks)/[\w./-]+)", line)
    }

    assert named
    assert [(page, path) for page, path in named if not (REPOSITORY / path).exists()] == []


@pytest.mark.parametrize("body", [pytest.param(body, id=page) for page, body in _snippets("python")])
def test_python_snippet_compiles_and_uses_names_that_exist(body: str) -> None:
    import flightwatch

    tree = ast.parse(body)
    used = {
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "flightwatch"
    }

    assert sorted(name for name in used if not hasattr(flightwatch, name)) == []


def test_every_variable_that_the_code_reads_is_documented() -> None:
    documented = _documented_variables()
    read = {
        name
        for root in CODE_ROOTS
        for path in (REPOSITORY / root).rglob("*.py")
        for name in VARIABLE.findall(path.read_text())
    }

    assert sorted(read - documented - _PREFIXES) == []


def test_every_documented_variable_is_read_by_the_code() -> None:
    text = "\n".join(path.read_text() for root in CODE_ROOTS for path in (REPOSITORY / root).rglob("*.py"))
    layout = {f"FLIGHTWATCH_{name}_RANK" for name in ("TP", "PP", "DP", "EP", "CP")}
    missing = sorted(
        name for name in _documented_variables() - layout if name not in text and not _is_assembled(name, text)
    )

    assert missing == []


# words that the pattern takes for variables: "FLIGHTWATCH_*" in prose, and the stem of names made at run time
_PREFIXES = {"FLIGHTWATCH", "FLIGHTWATCH_"}


def _is_assembled(name: str, text: str) -> bool:
    """Return whether the code makes the name from its stem and a quoted rest."""
    rest = name.removeprefix("FLIGHTWATCH_")
    return "FLIGHTWATCH_" in text and f'"{rest}"' in text


def _documented_variables() -> set[str]:
    """Return the names in the first column of the tables; `_X` is short for `FLIGHTWATCH_X`."""
    found: set[str] = set()
    for line in (REPOSITORY / "docs" / "configuration.md").read_text().splitlines():
        if not line.startswith("| `FLIGHTWATCH"):
            continue
        for word in re.findall(r"`([A-Z_]+)`", line.split("|")[1]):
            found.add(word if word.startswith("FLIGHTWATCH") else f"FLIGHTWATCH{word}")
    return found
