"""Cancelling messages of delay levels: definite answers that hold over any stop."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.errors import StoreFailed
from broker.format.properties import encode_properties
from broker.log.group_commit import CommitDriver
from broker.log.put import Put
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.delay.cancel import CANCEL_TOPIC
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.scheduled.delay.puts import DelayedPuts
from pyddmq.testing import SimDisk
from tests.integration.delay_tools import TOPIC, broker
from tests.integration.store_tools import HOST
from tests.integration.turns import take_over
from tests.integration.waiting_tools import lose
from tests.lifecycle.scenario import DERIVED


def test_cancelled_message_is_not_delivered() -> None:
    """Nor is anything else held up; asked again, the answer is the same."""
    node = broker()
    first, second = node.send(b"no", 3), node.send(b"yes", 3)
    assert node.delays.cancel(TOPIC, first) is CancelEffect.CANCELLED
    assert node.delays.cancel(TOPIC, first) is CancelEffect.CANCELLED
    assert node.pending == 1
    node.scheduler.advance(11)
    assert node.delivered() == [b"yes"]
    assert node.delays.cancel(TOPIC, second) is CancelEffect.TOO_LATE
    assert node.delays.cancel(TOPIC, first) is CancelEffect.CANCELLED
    assert node.metrics.value("pyddmq_delays_cancelled_total") == 1


@pytest.mark.parametrize("lost", DERIVED, ids=" ".join)
def test_cancel_survives_a_kill(lost: Sequence[str]) -> None:
    """With any of the derived files gone, as the log has the decision."""
    node = broker()
    ids = [node.send(b"%d" % number, 3) for number in range(4)]
    for each in (ids[0], ids[2]):
        assert node.delays.cancel(TOPIC, each) is CancelEffect.CANCELLED
    node.delays.save()

    def stop(disk: SimDisk) -> None:
        disk.kill()
        lose(disk, lost, -1)

    node = node.again(stop=stop)
    assert node.delays.cancel(TOPIC, ids[0]) is CancelEffect.CANCELLED
    node.scheduler.advance(30)
    assert node.delivered() == [b"1", b"3"]


def test_what_is_under_way_is_too_late() -> None:
    """A delivery that is staged precedes the cancel in the log."""
    node = broker()
    take_over(node.store, CommitDriver())
    name = node.send(b"x", 1)
    node.store.flush()
    node.scheduler.advance(1)
    assert node.delays.due.delivery.in_flight == 1
    assert node.delays.cancel(TOPIC, name) is CancelEffect.TOO_LATE
    assert node.delivered() == [b"x"]
    node = node.again()
    node.scheduler.advance(30)
    assert node.delivered() == [b"x"]


def test_message_that_was_stored_twice_is_cancelled_twice() -> None:
    """A producer without an answer sends again under the same id."""
    node = broker()
    put = Put(node.store.topics[TOPIC], 0, b"x", encode_properties({"UNIQ_KEY": "A" * 32}), unique_key=b"A" * 32)
    for _ in range(2):
        node.store.append([node.store.waiting(DelayedPuts).put(put, 2)], born_ms=1, born_host=HOST)
        node.store.flush()
    assert node.delays.cancel(TOPIC, "A" * 32) is CancelEffect.CANCELLED
    node.scheduler.advance(30)
    assert node.delivered() == []


def test_full_disk_takes_a_cancel() -> None:
    """From the space that is set aside, as dead letters and deliveries do; over a kill, too."""
    node = broker()
    name = node.send(b"no", 2)
    node.disk.capacity_bytes = 0
    node.fill()
    assert node.delays.cancel(TOPIC, name) is CancelEffect.CANCELLED
    node = node.again()
    node.disk.capacity_bytes = None
    assert node.delays.cancel(TOPIC, name) is CancelEffect.CANCELLED
    node.scheduler.advance(30)
    assert b"no" not in node.delivered()


def test_failed_disk_answers_nothing() -> None:
    """The cancel raises; a start tells whether it was stored."""
    node = broker()
    name = node.send(b"x", 2)
    node.disk.fail("sync", path_part="commitlog")
    with pytest.raises(StoreFailed):
        node.delays.cancel(TOPIC, name)


def test_cancel_is_a_record_that_rocketmq_passes_over() -> None:
    """In a topic that RocketMQ takes for its own, and delivers nothing of; the schedule topic has no other record."""
    node = broker()
    name = node.send(b"x", 2)
    node.delays.cancel(TOPIC, name)
    topics = node.store.topics
    assert topics[CANCEL_TOPIC].system
    assert (topics[CANCEL_TOPIC].queues[0].max_offset, topics[SCHEDULE_TOPIC].queues[1].max_offset) == (1, 1)
