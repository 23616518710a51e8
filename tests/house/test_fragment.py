"""The check for change fragments, on small repositories of its own."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def check() -> ModuleType:
    spec = importlib.util.spec_from_file_location("fragment", REPOSITORY / ".ci" / "fragment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI_BASE", raising=False)
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "test")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "test@localhost")
    _git("init", "--quiet", "--initial-branch=main")
    _commit("README.md")
    return tmp_path


def _git(*arguments: str) -> None:
    subprocess.run(["git", *arguments], check=True, capture_output=True)


def _commit(*names: str) -> None:
    for name in names:
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        with Path(name).open("a") as file:
            file.write("a line\n")
    _git("add", "--all")
    _git("commit", "--quiet", "--message", "Change " + names[0])


@pytest.mark.usefixtures("repository")
def test_code_without_a_fragment_fails(check: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    _commit("collector/batcher.py")

    assert check.main() == 1
    assert "collector/batcher.py" in capsys.readouterr().err


@pytest.mark.usefixtures("repository")
def test_code_with_a_fragment_passes(check: ModuleType) -> None:
    _commit("collector/batcher.py")
    _commit("changes/7.fixed.md")

    assert check.main() == 0


@pytest.mark.usefixtures("repository")
def test_fragment_of_an_unknown_kind_does_not_count(check: ModuleType) -> None:
    _commit("collector/batcher.py", "changes/7.improved.md")

    assert check.main() == 1


@pytest.mark.usefixtures("repository")
def test_docs_and_tests_alone_need_none(check: ModuleType) -> None:
    _commit("docs/quickstart.md", "tests/collector/test_batcher.py")

    assert check.main() == 0


@pytest.mark.usefixtures("repository")
def test_the_first_commit_of_all_passes(check: ModuleType) -> None:
    assert check.main() == 0


@pytest.mark.usefixtures("repository")
def test_work_before_the_base_is_not_asked_for(check: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    _commit("collector/batcher.py")
    monkeypatch.setenv("CI_BASE", "HEAD")
    _commit("docs/quickstart.md")

    assert check.main() == 0


def test_a_shallow_clone_passes_for_want_of_history(
    repository: Path, check: ModuleType, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    _commit("collector/batcher.py")
    clone = tmp_path_factory.mktemp("clone")
    _git("clone", "--quiet", "--depth", "1", repository.as_uri(), str(clone))
    monkeypatch.chdir(clone)

    assert check.main() == 0


def test_a_branch_is_compared_with_where_it_left_main(
    repository: Path, check: ModuleType, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    _commit("changes/1.added.md")
    clone = tmp_path_factory.mktemp("clone")
    _git("clone", "--quiet", str(repository), str(clone))
    monkeypatch.chdir(clone)
    _commit("analytics/engine.py")

    assert check.main() == 1
