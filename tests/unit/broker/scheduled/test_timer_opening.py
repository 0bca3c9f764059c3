"""What a start believes of timer log, wheel and checkpoint, and what it makes anew from the commit log."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from broker.scheduled.timer import metrics as counted
from broker.scheduled.timer.names import TIMER_TOPIC
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import Broker, broker
from tests.integration.waiting_tools import lose

DELAY_MS = 30_000
FILES = ("timerlog", "timerwheel", "config/timercheck", "pyddmq/timers.json", "pyddmq/sums/timers.json")


def saved(count: int = 3) -> Broker:
    """A store whose timers are all in the wheel and saved."""
    made = broker()
    for number in range(count):
        made.send(b"%d" % number, DELAY_MS)
    made.scheduler.advance(0.5)
    made.timers.save()
    return made


def counts(made: Broker) -> tuple[int, int, int]:
    """How often files were made anew, how often they were damaged, and what is pending."""
    return made.metrics.value(counted.REBUILT), made.metrics.value(counted.DAMAGED), made.pending


def delivered_later(made: Broker) -> list[bytes]:
    """All that is delivered until after the moment."""
    made.timers.start()
    made.scheduler.advance(DELAY_MS / 1000 + 1)
    return sorted(made.delivered())


@pytest.mark.parametrize("orderly", [True, False])
def test_what_was_saved_is_taken_over(orderly: bool) -> None:
    """After an orderly stop as after a kill nothing is read anew."""
    made = saved()
    if orderly:
        made.close()
        made = made.opened_again(start=False)
    else:
        made = made.again(start=False)
    assert counts(made) == (0, 0, 3)
    assert delivered_later(made) == [b"0", b"1", b"2"]


@pytest.mark.parametrize("which", [0b00001, 0b00010, 0b01100, 0b11111])
def test_what_is_missing_is_made_anew(which: int) -> None:
    """Timer log, wheel, the two checkpoints, or all of them: the commit log has what is pending."""
    made = saved()
    made.leave()
    made.disk.kill()
    lose(made.disk, FILES, which)
    made = made.opened_again(start=False)
    rebuilt, _, pending = counts(made)
    assert (rebuilt, pending) == (1, 3)
    assert delivered_later(made) == [b"0", b"1", b"2"]


def test_units_behind_the_checkpoint_are_taken_over_as_far_as_their_records_bear_them_out() -> None:
    """One that says another moment than its record, and all behind it, are entered from the records."""
    made = saved()
    for number in range(3, 6):
        made.send(b"%d" % number, DELAY_MS)
    made.scheduler.advance(0.5)
    log = made.timers.table.log
    assert log.count == 6
    due_ms = log.unit(log.position(4)).due_ms
    log.set_due(log.position(4), due_ms + 1)
    made = made.again(start=False)
    assert counts(made) == (0, 0, 6)
    assert made.timers.table.log.unit(log.position(4)).due_ms == due_ms
    assert delivered_later(made) == [b"%d" % number for number in range(6)]


def test_checkpoint_ahead_of_the_timer_log_is_damage() -> None:
    """It names units that are not there: told once, and all is made anew."""
    made = saved()
    made.leave()
    made.disk.kill()
    lose(made.disk, FILES[:1], 1)
    with capture_logs() as logs:
        made = made.opened_again(start=False)
    assert counts(made) == (1, 1, 3)
    assert [line["event"] for line in logs if line["event"].startswith("timers_")] == [
        "timers_damaged",
        "timers_rebuilding",
    ]


def test_what_was_delivered_behind_the_checkpoint_is_not_delivered_again() -> None:
    """The wheel still has it; the log says that another record took its place."""
    made = saved(2)
    made.scheduler.advance(DELAY_MS / 1000 - 0.6)
    made.timers.save()
    assert made.delivered() == []
    made.timers.checkpoints.end()
    made.scheduler.advance(1)
    assert made.delivered() == [b"0", b"1"]
    made = made.again(start=False)
    assert made.pending == 0
    assert delivered_later(made) == [b"0", b"1"]


def test_refused_timer_is_restored_and_lost_with_its_record() -> None:
    """Its record is read for its topic; where that is damaged nothing holds the start up."""
    made = broker()
    made.store.create_topic("gone", 1)
    for body in (b"a", b"b"):
        made.send(body, 1000, "gone")
    made.store.topic_changes.delete("gone")
    made.scheduler.advance(2)
    assert len(made.timers.due.refused) == 2
    made.timers.save()
    first, _ = made.store.topics[TIMER_TOPIC].queues[0].read(0, 2)
    made.leave()
    made.disk.kill()
    made.disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", first[0] + 30, 0)
    made = made.opened_again(start=False)
    assert (len(made.timers.due.refused), made.metrics.value(counted.LOST)) == (1, 1)
    [refused] = made.timers.due.refused.values()
    assert (refused.tries, made.pending) == (0, 1)
