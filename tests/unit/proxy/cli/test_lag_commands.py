"""`pyddmq lag`, `lag check` and `lag slo` over answers of a node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from lag.rules.statuses import Level
from lag.rules.waiting_rules import judge_waiting
from lag.samples import ScheduledSample
from proxy.cli.app import run
from proxy.cli.commands import node_commands
from proxy.cli.errors import CliError
from proxy.cli.lag import lag_commands, lag_objective_command
from proxy.operate import answers
from proxy.operate.attention import kinds
from proxy.operate.attention.findings import judged
from proxy.operate.attention.judgement import Judgement
from proxy.operate.lookups.lag import waiting_of
from proxy.operate.moments import parse_duration
from proxy.operate.views.lag_history import BurnRate, ObjectiveKept, ObjectivesAnswer
from proxy.process.exit_codes import ExitCode
from tests.admin_node import NOW_MS, busy_node
from tests.lag_answers import lag_judgement, lag_queue


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A node whose judgement and limit the test sets."""
    given: dict[str, Any] = {"limit": 100}

    def get(_: str, path: str, kind: type[Any], *, parameters: dict[str, Any], **__: object) -> Any:
        assert path == "/api/lag"
        found: Judgement = given["judged"]
        group = parameters["group"]
        if group is not None and group not in {each.group for each in found.groups}:
            raise CliError(f"Group {group!r} does not exist", ExitCode.NOT_FOUND)
        return found.as_lag(limit=given["limit"], group=group)

    monkeypatch.setattr(lag_commands, "get", get)
    return given


def test_record_whose_process_does_not_start_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On a machine that has no memory for it, say."""
    monkeypatch.setattr(sys, "executable", "/bin/false")
    assert run(["lag", "record", "--kafka", "127.0.0.1:1", "--journal", str(tmp_path), "--once"]) == 1
    assert "pyddmq: the process that queries the cluster did not start" in capsys.readouterr().err


def test_groups_come_first_and_only_queues_that_say_something(
    node: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A node of many quiet queues prints a line per group."""
    quiet = [lag_queue("audit", queue=number) for number in range(50)]
    late = lag_queue(queue=7, status="STOP", lag=9, unfinished=9, cause="no_consumer", evidence="no client pulls")
    node["judged"] = lag_judgement([*quiet, late, lag_queue(queue=8, lag=2, unfinished=2)], empty={"audit": 4})
    assert lag_commands.show() == ExitCode.OK
    lines = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    [billing] = [words for words in lines if words[:3] == ["billing", "ERR", "STOP"]]
    assert billing == ["billing", "ERR", "STOP", "no_puller", "2", "11", "11", "0", "s"]
    assert lines.index(["audit", "OK", "OK", "50", "0", "0", "0"]) > lines.index(billing)
    assert [words[2] for words in lines if words[:2] == ["billing", "orders"]] == ["7", "8"]
    assert not [words for words in lines if words[:2] == ["audit", "orders"]]


def test_what_waits_in_the_node_is_a_table(node: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Timers, delay levels and transactions; not where one group was asked for."""
    late = ScheduledSample(time_ms=NOW_MS, kind="delay", level=3, pending=7, overdue=2, oldest_due_ms=NOW_MS - 90_000)
    half = ScheduledSample(time_ms=NOW_MS, kind="half", pending=1, oldest_ms=NOW_MS - 3_600_000)
    waiting = [waiting_of(each, judge_waiting(each, NOW_MS)) for each in (late, half)]
    node["judged"] = lag_judgement([lag_queue()], waiting=waiting)
    assert lag_commands.show() == ExitCode.OK
    lines = [" ".join(line.replace("│", " ").split()) for line in capsys.readouterr().out.splitlines()]
    assert "delay level 3 LATE 5 2 1 min 30 s" in lines
    assert "undecided transactions UNDECIDED 1 0 1 h" in lines
    assert lag_commands.show(group="billing") == ExitCode.OK
    assert "delay level" not in capsys.readouterr().out


def test_empty_node_prints_no_queue(node: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Queues that were never written to say nothing."""
    node["judged"] = lag_judgement([], groups=["audit"], empty={"audit": 17})
    assert lag_commands.show() == ExitCode.OK
    out = capsys.readouterr().out
    assert "INCOMPLETE" not in out
    assert "1 group, OK" in out
    assert lag_commands.check() == Level.OK


def test_check_of_a_group_that_does_not_exist_is_not_ok(
    node: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """And names it."""
    node["judged"] = lag_judgement([lag_queue()])
    assert lag_commands.check(group="nobody") == Level.UNKNOWN
    assert "Group 'nobody' does not exist" in capsys.readouterr().err


def test_check_of_a_group_without_samples_says_so(node: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """Not that no message is left."""
    node["judged"] = lag_judgement([], groups=["audit"])
    assert lag_commands.check(group="audit") == Level.UNKNOWN
    assert capsys.readouterr().out.startswith("UNKNOWN: no samples of group audit yet")


@pytest.mark.parametrize(("bad", "level"), [(True, Level.ERR), (False, Level.WARN)])
def test_check_counts_every_finding(
    node: dict[str, Any], capsys: pytest.CaptureFixture[str], bad: bool, level: Level
) -> None:
    """Of the node and of groups, with what to do."""
    node["judged"] = lag_judgement([lag_queue()], found=[kinds.found("damage", bad, "The log is damaged.", count=1)])
    assert lag_commands.check() == level
    assert "The log is damaged." in capsys.readouterr().out
    assert lag_commands.check(group="billing") == Level.OK, "it stops no group"


def test_limit_that_could_not_be_compared_with_every_queue_is_not_ok(
    node: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    """A node with more queues than an answer lists."""
    node["judged"] = lag_judgement([lag_queue(queue=number, time_lag_ms=number) for number in range(20)])
    node["limit"] = 15
    assert lag_commands.check() == Level.OK
    assert lag_commands.check(max_lag=3) == Level.UNKNOWN
    assert "5 more queues could not be compared with the limits; pass --group" in capsys.readouterr().out
    node["limit"] = 20
    assert lag_commands.check(max_lag=3) == Level.OK


def test_sums_say_what_they_are_without(node: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """A queue whose lag is not known."""
    unknown = lag_queue(queue=1, status="UNKNOWN", lag=None, unfinished=None, time_lag_ms=None)
    node["judged"] = lag_judgement([lag_queue(lag=5, unfinished=5), unknown])
    assert lag_commands.check() == Level.UNKNOWN
    assert "5 messages and more left" in capsys.readouterr().out


def test_names_of_groups_in_kafka_move_no_cursor(
    node: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Anyone may name a group there; a journal of the cluster has it as it is."""
    name = "\x1b[2Jbilling\n"
    node["judged"] = lag_judgement([lag_queue(name, lag=9, unfinished=9)])
    assert lag_commands.check(max_lag=1) == Level.ERR
    kept = ObjectiveKept(
        group=name, topic=None, queue=None, share=0.5, messages_share=0.5, coverage=1.0, messages=10, lost=0, queues=1,
        kept_ms=1, over_ms=1, unknown_ms=0,
    )  # fmt: skip
    answer = ObjectivesAnswer(objective_ms=1, since_ms=0, until_ms=1, asked_ms=1, shortened=False, kept=[kept])
    monkeypatch.setattr(lag_objective_command, "get", lambda *_, **__: answer)
    assert lag_objective_command.slo(at_least=99.9) == ExitCode.CHECK_FAILED
    shown = capsys.readouterr().out
    assert "\\x1b[2Jbilling\\n: orders 0 has 9 messages left, --max-lag is 1" in shown
    assert "\\x1b[2Jbilling\\n met it for 50.000 %" in shown
    assert "\x1b" not in shown


@pytest.mark.parametrize("span", ["30d", "400d", "90s", " 1.5h "])
def test_spans_of_slo_are_read_by_the_node(monkeypatch: pytest.MonkeyPatch, span: str) -> None:
    """As the command reads them."""
    seen = {}

    def get(*_: object, parameters: dict[str, str], **__: object) -> ObjectivesAnswer:
        seen.update(parameters)
        return ObjectivesAnswer(objective_ms=1, since_ms=0, until_ms=1, asked_ms=1, shortened=False, kept=[])

    monkeypatch.setattr(lag_objective_command, "get", get)
    assert lag_objective_command.slo(objective="60s", since=span) == Level.UNKNOWN
    assert (seen["objective"], seen["since"]) == ("60s", span.strip())
    assert parse_duration(seen["since"]) == parse_duration(span)


def burn(window_ms: int, rate: float | None, coverage: float = 1.0, missed: int = 0) -> BurnRate:
    """Return the burn rate of a window of 1,000 messages."""
    return BurnRate(window_ms=window_ms, burn_rate=rate, messages=1_000, missed=missed, coverage=coverage)


def test_budget_that_is_used_up_ends_with_1_and_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A rate of which too little is known is no figure, and a budget that goes fast says how long it lasts."""
    hour_ms = 3_600_000
    rates = {
        "billing": [burn(24 * hour_ms, 3.0, missed=3), burn(hour_ms, 14.4, 0.93), burn(300_000, 9.9, 0.4)],
        "mail": [burn(24 * hour_ms, 0.5), burn(hour_ms, 4.0), burn(300_000, None)],
    }
    kept = [
        ObjectiveKept(
            group=name, topic=None, queue=None, share=1.0, messages_share=share, coverage=1.0, messages=1_000, lost=0,
            queues=1, kept_ms=24 * hour_ms, over_ms=0, unknown_ms=0, burn_rates=rates[name], budget_left=left,
        )
        for name, share, left in (("billing", 0.997, -2.0), ("mail", 0.9995, 0.5))
    ]  # fmt: skip
    answer = ObjectivesAnswer(
        objective_ms=60_000, since_ms=0, until_ms=1, asked_ms=24 * hour_ms, shortened=False, kept=kept, at_least=0.999
    )
    monkeypatch.setattr(lag_objective_command, "get", lambda *_, **__: answer)
    assert lag_objective_command.slo(at_least=99.9) == ExitCode.CHECK_FAILED
    shown = capsys.readouterr().out
    rows = [[word.strip() for word in line.split("│")[1:-1]] for line in shown.splitlines() if "│" in line][2:]
    assert rows == [
        ["billing", "3", "1", "-200 %", "3", "14.4 (known 93 %)", "? (known 40 %)"],
        ["mail", "0", "1", "50 %", "0.5", "4", "none"],
    ]
    assert "mail: at the rate of the last hour the rest of its budget lasts 3 h" in shown
    assert "billing met it for 99.700 %, --at-least is 99.9 %" in shown
    answer = replace(answer, kept=kept[1:])
    assert lag_objective_command.slo(at_least=99.9) == ExitCode.OK


def test_groups_show_what_waits_for_a_retry(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A group whose messages all failed is not idle."""
    node = busy_node()
    topic = replace(node.group_list[1].topics[0], retrying=4_321)
    node.group_list = [replace(node.group_list[1], topics=[topic])]
    answer = answers.groups(node, judged(node), limit=10)
    monkeypatch.setattr(node_commands, "get", lambda *_, **__: answer)
    assert node_commands.groups() == ExitCode.OK
    lines = [line.replace("│", " ").split() for line in capsys.readouterr().out.splitlines()]
    [row] = [words for words in lines if words[:1] == ["orders-billing"]]
    assert row[-1] == "4321"
