from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from flightwatch import _autostart
from flightwatch.run_command import prepare

AGENT = Path(_autostart.__file__).parents[1]


@pytest.mark.parametrize(
    "arguments",
    [
        ["train.py"],
        ["-u", "train.py", "--steps", "3"],
        ["-m", "training.main"],
        ["-X", "dev", "-W", "error", "train.py"],
        ["-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5)", "--multiprocessing-fork"],
        ["/venv/bin/pytest"],
        [],
    ],
)
def test_what_may_train_is_watched(arguments: list[str]) -> None:
    assert _autostart.trains(["python", *arguments])


@pytest.mark.parametrize(
    "arguments",
    [
        ["/venv/bin/torchrun", "--nproc_per_node", "4", "train.py"],
        ["-m", "torch.distributed.run", "train.py"],
        ["-u", "-m", "torch.distributed.launch", "train.py"],
        ["-m", "flightwatch", "forward"],
        ["/venv/bin/flightwatch", "run"],
        ["-m", "pip", "install", "x"],
        ["/usr/bin/pip3", "list"],
        ["-c", "from multiprocessing.resource_tracker import main;main(5)"],
        ["-m"],
    ],
)
def test_launchers_and_helpers_are_left_alone(arguments: list[str]) -> None:
    assert not _autostart.trains(["python", *arguments]) or arguments == ["-m"]


def run(code: str, *, path: list[str], **environ: str) -> str:
    told = {"PYTHONPATH": os.pathsep.join(path), "PATH": os.environ["PATH"], **environ}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=told, check=True)
    assert done.stderr == ""
    return done.stdout


SHOW = "import sys; print([type(finder).__name__ for finder in sys.meta_path].count('_AfterImport'))"


def test_the_pth_file_waits_for_torch_only_where_the_switch_is_on(tmp_path: Path) -> None:
    (tmp_path / "flightwatch.pth").write_text((AGENT / "flightwatch.pth").read_text())
    code = f"import site; site.addsitedir({str(tmp_path)!r}); {SHOW}; print('flightwatch' in sys.modules)"

    assert run(code, path=[str(AGENT)], FLIGHTWATCH="1") == "1\nTrue\n"
    assert run(code, path=[str(AGENT)], FLIGHTWATCH="0") == "0\nFalse\n"
    assert run(code, path=[str(AGENT)]) == "0\nFalse\n"


def test_the_pth_file_is_silent_where_flightwatch_is_gone(tmp_path: Path) -> None:
    line = (AGENT / "flightwatch.pth").read_text().replace("flightwatch", "no_such_package").replace("FLIGHTWATCH", "F")

    run(line, path=[], F="1")


def test_the_import_hook_steps_aside_and_torch_is_whole(tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("value = 7\n")
    code = (
        "import sys; from flightwatch import _autostart;"
        "_autostart.hook_torch = lambda: print('hooked', sys.modules['torch'].value);"
        f"_autostart.arm(); import torch; {SHOW}; print(torch.value, torch.__spec__.loader.__class__.__name__)"
    )

    found = run(code, path=[str(tmp_path), str(AGENT)], FLIGHTWATCH="1")

    assert found == "hooked 7\n0\n7 SourceFileLoader\n"


def test_who_only_asks_whether_there_is_a_torch_does_not_use_up_the_hook(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("")
    code = (
        "import sys, importlib.util; from flightwatch import _autostart;"
        "_autostart.hook_torch = lambda: print('hooked');"
        "_autostart.arm(); print(importlib.util.find_spec('torch').name, importlib.util.find_spec('torch').name);"
        f"import torch; {SHOW}"
    )

    assert run(code, path=[str(tmp_path), str(AGENT)], FLIGHTWATCH="1") == "torch torch\nhooked\n0\n"


def test_an_import_of_torch_that_fails_fails_as_ever(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise OSError('no library')\n")
    code = (
        "from flightwatch import _autostart; _autostart.arm()\n"
        "try:\n    import torch\nexcept OSError as error:\n    print(error)\n"
    )

    assert run(code, path=[str(tmp_path), str(AGENT)], FLIGHTWATCH="1") == "no library\n"


def test_sitecustomize_hands_on_to_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('mine')\n")
    ours = str(AGENT / "flightwatch" / "_site")

    assert run(SHOW, path=[ours, str(AGENT), str(tmp_path)], FLIGHTWATCH="1") == "mine\n1\n"


def test_the_launcher_keeps_a_run_id_that_is_told_and_the_kill_switch() -> None:
    assert prepare({"SLURM_JOB_ID": "7"})["FLIGHTWATCH_RUN_ID"] == "7"
    assert prepare({"SLURM_JOB_ID": "7"}, run_id="mine")["FLIGHTWATCH_RUN_ID"] == "mine"
    assert prepare({"A": "b"}).items() >= {"A": "b", "FLIGHTWATCH": "1"}.items()
    assert prepare({"FLIGHTWATCH": "0"}) == {"FLIGHTWATCH": "0"}
