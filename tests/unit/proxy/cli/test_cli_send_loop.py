"""`pyddmq send --every`: loops from the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from pyddmq import idl
from pyddmq.testing.client import ScriptedNode

WIRE: Any = idl.load("producer")
AT_MS = 1_800_000_000_000


def take(method: str, _: Any) -> Any:
    """A node that takes every loop."""
    assert method == "sendDelaySync"
    return WIRE.DelayResult(code=0, msg="OK", uniqDelayMsgId="the id")


def test_loop_has_its_beginning_gap_and_end(capsys: pytest.CaptureFixture[str]) -> None:
    """Every option reaches the node; the id is printed."""
    options = ["--at", str(AT_MS), "--every", "2m", "--times", "3", "--tag", "t", "--property", "a=b"]
    with ScriptedNode("producer", take) as node:
        expire = ["--expire", str(AT_MS + 600_000)]
        assert run(["send", "orders", "ping", *options, *expire, "--producer", node.address]) == ExitCode.OK
    sent = node.calls[0][1].delayMessage
    assert (sent.topic, sent.body, sent.tags, sent.properties) == ("orders", b"ping", "t", {"a": "b"})
    assert (sent.dmsgtype, sent.timestamp, sent.interval, sent.times) == (3, AT_MS // 1000, 120, 3)
    assert sent.expire == AT_MS // 1000 + 600
    assert capsys.readouterr().out == "orders  loop  id the id\n"


def test_each_line_is_a_loop(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """With growing gaps; as JSON."""
    file = tmp_path / "lines"
    file.write_text("one\ntwo\n")
    with ScriptedNode("producer", take) as node:
        options = ["--growth", "2", "--times", "9", "--json"]
        assert run(["send", "orders", "--file", str(file), *options, "--producer", node.address]) == ExitCode.OK
    sent = [arguments.delayMessage for _, arguments in node.calls]
    assert [(each.body, each.dmsgtype, each.interval) for each in sent] == [(b"one", 4, 2), (b"two", 4, 2)]
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"topic": "orders", "delayId": "the id"}] * 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--times", "3"], "add --every or --growth"),
        (["--expire", "now"], "add --every or --growth"),
        (["--every", "5s"], "a loop needs an end"),
        (["--every", "5s", "--growth", "2", "--times", "1"], "exclude each other"),
        (["--every", "5s", "--times", "1", "--key", "k"], "remove --key"),
        (["--every", "5s", "--times", "1", "--delay-level", "1"], "remove --key"),
        (["--every", "1500ms", "--times", "1"], "whole number of seconds"),
        (["--every", "soon", "--times", "1"], "not a valid time span"),
        (["--every", "5s", "--expire", "never"], "not a valid time"),
    ],
)
def test_options_that_make_no_loop(capsys: pytest.CaptureFixture[str], options: list[str], text: str) -> None:
    """Refused with what would be right, before anything is sent."""
    assert run(["send", "orders", "x", *options, "--producer", "127.0.0.1:1"]) == ExitCode.USAGE
    assert text in " ".join(capsys.readouterr().err.split())
