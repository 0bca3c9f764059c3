"""What was begun while a queue was there, and is durable when it has been taken away and given back."""

from __future__ import annotations

import pytest

from tests.contract.grounds import MemoryGround
from tests.unit.upstream_world import Client


@pytest.mark.parametrize("retry_topic", [False, True], ids=["dead letter", "retry"])
def test_record_of_an_earlier_term_finishes_nothing_of_the_next(retry_topic: bool) -> None:
    """The message is at work again, and finished by what becomes of it now."""
    ground = MemoryGround({"retryTopic": retry_topic, "retryIntervals": [60_000] * retry_topic}, queues=1)
    client = Client()
    ground.put("bad")
    [place] = ground.drain(client, 0.5)
    ground.group.apply(ground.topic, place[0], [], [place[1]], client)
    tracker = ground.group_queue().tracker
    assert tracker.undecided, "its record is on its way"
    ground.revoke()
    ground.give_back(0)
    assert place in ground.drain(client, 65 if retry_topic else 5), "it came back, with its wait"
    assert not tracker.is_finished(place[1])
    assert ground.ack(client, place) == 1
    assert tracker.is_finished(place[1])
