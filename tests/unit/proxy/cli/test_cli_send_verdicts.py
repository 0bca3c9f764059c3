"""`pyddmq send` says of every line whether it is stored, over all attempts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from pyddmq import idl
from pyddmq.testing.client import HANG_UP, ScriptedNode

WIRE: Any = idl.load("producer")


@pytest.fixture
def lines(tmp_path: Path) -> str:
    """File of four lines."""
    file = tmp_path / "lines"
    file.write_text("one\ntwo\nthree\nfour\n")
    return str(file)


def one_stored_then_lost_then_refused(method: str, answers: list[str]) -> Any:
    """Answer the first call, read the second and hang up, refuse what follows."""
    answers.append(method)
    result = WIRE.DelayResult if "Delay" in method else WIRE.Result
    if len(answers) == 1:
        return result(code=0, msg="OK")
    return HANG_UP if len(answers) == 2 else result(code=15, msg="too fast")


@pytest.mark.parametrize(
    ("options", "which"),
    [
        (["--batch", "2"], "2 messages; lines 3 to 4 may or may not be stored; later lines are not"),
        (["--batch", "1"], "1 message; line 2 may or may not be stored; later lines are not"),
        (["--every", "1m", "--times", "2"], "1 message; line 2 may or may not be stored; later lines are not"),
    ],
)
def test_lines_whose_first_try_got_no_answer_may_be_stored(
    capsys: pytest.CaptureFixture[str], lines: str, options: list[str], which: str
) -> None:
    """The refusal of the second try says nothing of the first."""
    answers: list[str] = []
    with ScriptedNode("producer", lambda method, _: one_stored_then_lost_then_refused(method, answers)) as node:
        command = ["send", "orders", "--file", lines, *options, "--producer", node.address]
        assert run(command) == ExitCode.REFUSED
    assert f"Stored before: {which}." in " ".join(capsys.readouterr().err.split())


def test_first_lines_that_got_no_answer_may_be_stored(capsys: pytest.CaptureFixture[str], lines: str) -> None:
    """Also when nothing was stored before them."""
    with ScriptedNode("producer", lambda _method, _arguments: HANG_UP) as node:
        assert run(["send", "orders", "--file", lines, "--producer", node.address]) == ExitCode.CANNOT_CONNECT
    reported = " ".join(capsys.readouterr().err.split())
    assert "Stored before: 0 messages; lines 1 to 4 may or may not be stored" in reported
