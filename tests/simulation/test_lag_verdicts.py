"""Staged troubles in virtual time: the status and cause that a node, its JSON and its commands tell of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from proxy.cli.lag import lag_commands
from proxy.operate.attention.findings import judged as judged_node
from proxy.operate.changes.groups import PauseBody
from proxy.operate.views.lag import LagAnswer, LagQueue
from tests.simulation.operator import change
from tests.simulation.test_queue_samples import rounds, ward_of
from tests.simulation.ward import Ward

STOP_SECONDS = 200.0
"""Longer than the rules wait until they call something stopped."""


def judged(ward: Ward) -> LagQueue:
    """Return the verdict on the only queue, after the next round."""
    rounds(ward)
    ward.run(0.5)
    answer = judged_node(ward.view).as_lag(group="by-key", limit=10)
    [found] = answer.queues
    return found


def worked_off(ward: Ward) -> None:
    """Everything is acknowledged."""
    for number in range(5):
        ward.send("orders", f"k{number}")
    ward.finish()


def nobody_reads(ward: Ward) -> None:
    """Messages, and no client ever."""
    for number in range(20):
        ward.send("orders", f"k{number}")
    ward.run(STOP_SECONDS)


def consumers_went(ward: Ward) -> None:
    """They worked, and then no one pulls any more."""
    worked_off(ward)
    for number in range(20):
        ward.send("orders", f"k{number}")
    ward.run(STOP_SECONDS)


def poison(ward: Ward) -> None:
    """One message fails again and again, and its key waits."""
    for _ in range(15):
        ward.send("orders", "poison")
    for _ in range(9):
        ward.fail(1)
        ward.run(25)


def paused(ward: Ward) -> None:
    """An operator has it rest."""
    worked_off(ward)
    assert change(ward.world, "pause", PauseBody(group="by-key")) is not None
    for number in range(20):
        ward.send("orders", f"k{number}")
    ward.run(STOP_SECONDS)


@pytest.mark.parametrize(
    ("stage", "status", "cause"),
    [
        (worked_off, "OK", None),
        (nobody_reads, "NOT_CONSUMED", "no_consumer"),
        (consumers_went, "STOP", "no_consumer"),
        (poison, "BLOCKED", "poison_message"),
        (paused, "PAUSED", "paused"),
    ],
)
def test_trouble_has_its_status_and_cause(stage: Callable[[Ward], None], status: str, cause: str | None) -> None:
    """Over the window of a running node, from its own samples."""
    ward = ward_of(retryIntervals=[20_000, -1], maxRetry=-1)
    ward.run(40)
    stage(ward)
    found = judged(ward)
    assert (found.status, found.cause) == (status, cause), found


def test_restart_does_not_begin_the_window_anew() -> None:
    """What the journal has of the process before counts: the status stands, and is not INCOMPLETE."""
    ward = ward_of()
    consumers_went(ward)
    assert judged(ward).status == "STOP"
    ward.restart(kill=True)
    found = judged(ward)
    assert (found.status, found.lag) == ("STOP", 20)
    assert found.samples is not None
    assert found.samples > 10


def test_queue_that_was_never_written_to_needs_no_judgement() -> None:
    """Its group is OK from the first round on; before that nothing is known."""
    ward = ward_of()
    assert judged_node(ward.view).level == "UNKNOWN"
    rounds(ward)
    ward.run(0.5)
    found = judged_node(ward.view).as_lag(limit=10)
    assert (found.level, found.queues_total, found.queues_empty) == ("OK", 0, 1)
    [group] = found.groups
    assert (group.status, group.level, group.lag) == ("OK", "OK", 0)


def test_answer_and_commands_tell_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is the level; bounds of the caller's own make it ERR."""
    ward = ward_of()
    ward.run(40)
    worked_off(ward)
    found = judged(ward)

    def get(_: str, path: str, kind: type[LagAnswer], **__: object) -> LagAnswer:
        assert path == "/api/lag"
        assert kind is LagAnswer
        return judged_node(ward.view).as_lag(limit=10)

    monkeypatch.setattr(lag_commands, "get", get)
    assert lag_commands.show() == 0
    shown = capsys.readouterr().out
    assert found.status in shown
    assert "by-key" in shown
    assert lag_commands.check() == 0
    assert capsys.readouterr().out == "OK: 1 group, 0 messages left\n"
    ward.send("orders", "k")
    rounds(ward)
    ward.run(5)
    rounds(ward)
    ward.run(0.5)
    assert lag_commands.check(max_lag=0) == 2
    assert "by-key: orders 0 has 1 message left, --max-lag is 0" in capsys.readouterr().out
    assert lag_commands.check(max_seconds=1.0) == 2
    assert "is behind by" in capsys.readouterr().out


def test_group_that_is_not_there_is_not_known() -> None:
    """A check of it must not end well."""
    ward = ward_of()
    assert not ward.view.has_group("nobody")
    assert judged_node(ward.view).as_lag(group="nobody", limit=10).level == "UNKNOWN"
