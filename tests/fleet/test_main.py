from __future__ import annotations

import json
import socket

import pytest

from fleet.__main__ import main


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--fast"], "--fast needs --steps"),
        (["--ranks", "0", "--steps", "1"], "0 ranks cannot be simulated"),
        (["--ranks", "8", "--dp", "2"], "--ranks or --dp, not both"),
        (["--slow-node", "node-999"], "no node 'node-999'"),
        (["--slow-node", "node-001", "--slow-steps", "5"], "--slow-steps A:B takes 2 whole numbers"),
        (["--slow-node", "node-001", "--slow-steps", "9:3"], "cannot last from step 9"),
        (["--slow-steps", "1:3"], "needs --slow-node"),
        (["--slow-loop", "1:0:3"], "S of at least 1"),
        (["--step-seconds", "0"], "--step-seconds has to be above 0"),
        (["--step-seconds", "nan"], "--step-seconds has to be above 0"),
    ],
)
def test_bad_input_gives_one_clear_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert message in lines[0]


def test_a_job_that_nobody_acknowledged_says_so_and_exits_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:  # bound, but it does not listen: connections are refused
        taken.bind(("127.0.0.1", 0))
        collector = f"127.0.0.1:{taken.getsockname()[1]}"

        code = main(["--ranks", "8", "--steps", "2", "--fast", "--collector", collector, "--drain-seconds", "0.2"])

    printed = capsys.readouterr()
    truth = json.loads(printed.out.splitlines()[-1])
    assert code == 1
    assert 0 == truth["records_acknowledged"] < truth["records_written"]
    assert f"not everything was acknowledged by {collector}" in printed.err
