"""The installer's one line tells the truth, and pip's words survive a failure."""

from __future__ import annotations

import importlib.util
import io
from collections import deque
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def install() -> ModuleType:
    spec = importlib.util.spec_from_file_location("install", REPOSITORY / "requirements" / "install.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_counts_the_pins_of_all_files(install: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(
        "numpy==2.0 \\\n    --hash=sha256:00\nscipy==1.0 ; python_version > '3.11'\n# c==1\n"
    )
    (tmp_path / "b.txt").write_text("dash[fastapi]==4.0\n")

    count = install.count_packages(["-r", str(tmp_path / "a.txt"), "-r", str(tmp_path / "b.txt")])

    assert count == 3


def test_every_package_moves_the_line_once(install: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "Collecting numpy==2.0\n  Downloading numpy-2.0-cp311.whl (1 MB)\n"
        "Requirement already satisfied: scipy==1.0 in ./lib\n"
        "Installing collected packages: numpy, scipy\n"
    )
    kept: deque[str] = deque()

    install._follow(io.StringIO(words), "packages", 2, kept)

    assert capsys.readouterr().out.splitlines() == ["packages: 1 of 2  numpy", "packages: unpacking 2 packages"]
    assert "".join(kept) == words


@pytest.mark.parametrize(
    ("announced", "name"),
    [
        ("numpy==2.4.6", "numpy"),
        ("grpcio-health-checking>=1.80", "grpcio-health-checking"),
        ("/srv/files/typing_extensions-4.16.0-py3-none-any.whl", "typing_extensions"),
        ("file:///home/somebody/flightwatch/agent", "agent"),
    ],
)
def test_names_a_package_without_version_or_path(install: ModuleType, announced: str, name: str) -> None:
    assert install._package(announced) == name


def test_failure_shows_pips_own_words_and_its_exit_code(install: ModuleType, capfd: pytest.CaptureFixture[str]) -> None:
    code = install.main(["nothing", "-r", "no-such-file.txt"])

    assert code != 0
    assert "no-such-file.txt" in capfd.readouterr().err
