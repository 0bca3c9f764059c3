"""Staged troubles in virtual time: the status and cause that a node, its JSON and its commands tell of each."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.runtime.steps import run_now
from proxy.cli.lag import lag_commands
from proxy.operate.changes.groups import PauseBody
from proxy.operate.changes.topics import DeletionBody
from proxy.operate.lookups.lag import lag_of
from proxy.operate.views.lag import LagAnswer, LagQueue
from tests.simulation.loops import TOPIC as LATER
from tests.simulation.operator import change
from tests.simulation.test_queue_samples import rounds, ward_of
from tests.simulation.ward import Ward

STOP_SECONDS = 200.0
"""Longer than the rules wait until they call something stopped."""


def judged(ward: Ward) -> LagQueue:
    """Return the verdict on the only queue, after the next round."""
    rounds(ward)
    ward.run(0.5)
    answer = run_now(ward.view.lag(group="by-key", limit=10))
    assert answer is not None
    [found] = answer.queues
    return found


def quiet(ward: Ward) -> None:
    """Nothing was ever published."""


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


def all_fail(ward: Ward) -> None:
    """Messages of several keys fail, all of them."""
    for number in range(12):
        ward.send("orders", f"k{number}")
    for _ in range(6):
        ward.fail(12)
        ward.run(21)


def unanswered(ward: Ward) -> None:
    """One client has a message and does not answer, while more messages of its key come."""
    for _ in range(12):
        ward.send("orders", "k")
    assert len(ward.pull()) == 1
    for _ in range(40):
        ward.send("orders", "k")
        ward.run(10)


def busy(ward: Ward) -> None:
    """One client works on message after message and is slower than production; at most moments nothing is out."""
    for second in range(200):
        ward.send("orders", f"k{second}")
        if second % 4 == 0:
            for place in ward.pull(count=1, linger_ms=100):
                ward.answer(place, success=True)
        ward.run(1)


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
        (quiet, "OK", None),
        (worked_off, "OK", None),
        (nobody_reads, "NOT_CONSUMED", "no_consumer"),
        (consumers_went, "STOP", "no_consumer"),
        (poison, "BLOCKED", "poison_message"),
        (all_fail, "BLOCKED", "all_fail"),
        (unanswered, "WARN", "unanswered"),
        (busy, "WARN", "slow_consumer"),
        (paused, "PAUSED", "paused"),
    ],
)
def test_trouble_has_its_status_and_cause(stage: Callable[[Ward], None], status: str, cause: str | None) -> None:
    """Over the window of a running node, from its own samples."""
    ward = ward_of(retryIntervals=[20_000, -1], maxRetry=-1, timeout=3_600_000, maxPullBatchSize=12)
    ward.run(40)
    stage(ward)
    found = judged(ward)
    assert (found.status, found.cause) == (status, cause), found


def test_messages_deleted_with_their_topic_were_not_lost_to_retention() -> None:
    """The group had finished none of them, and did not subscribe the topic meanwhile."""
    ward = ward_of()
    for number in range(20):
        ward.send("orders", f"k{number}")
    ward.run(20)
    ward.edit_group(lambda groups: groups[0]["topics"][0].update(topic=LATER))
    ward.run(20)
    assert change(ward.world, "delete_topic", DeletionBody(topic="orders", confirm="orders", force=True)) is not None
    ward.edit_group(lambda groups: groups[0]["topics"][0].update(topic="orders"))
    rounds(ward)
    answer = run_now(ward.view.lag(group="by-key", limit=10))
    assert answer is not None
    [found] = [each for each in answer.queues if each.topic == "orders"]
    assert (found.status, found.cause) == ("DATA_LOSS", "topic_deleted"), found


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


def test_restart_after_a_long_time_does_not_forget_that_a_group_read() -> None:
    """A group that has read and finished nothing is stopped; no one says that it was never consumed."""
    ward = ward_of(timeout=3_600_000)
    for number in range(20):
        ward.send("orders", f"k{number}")
    assert ward.pull()
    ward.run(30)
    ward.world.kill()
    ward.run(1_200)
    ward.start()
    ward.run(STOP_SECONDS)
    found = judged(ward)
    assert (found.status, found.cause) == ("STOP", "no_consumer"), found


def test_answer_and_commands_tell_the_same(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code is the level; bounds of the caller's own make it ERR."""
    ward = ward_of()
    ward.run(40)
    worked_off(ward)
    found = judged(ward)

    def get(_: str, path: str, kind: type[LagAnswer], **__: object) -> LagAnswer:
        assert path == "/api/lag"
        assert kind is LagAnswer
        answer = lag_of(ward.node, limit=10)
        assert answer is not None
        return answer

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
    """Of one that is, all is told."""
    ward = ward_of()
    assert run_now(ward.view.lag(group="nobody", limit=10)) is None
