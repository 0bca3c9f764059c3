"""Where a real Kafka says that partitions end and a group stands: open transactions, commits above what may be read."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.kafka.topics import plain_producer
from tests.kafka_world import Clients, Heard
from upstream.kafka.link import Commit, LogBounds, Place

pytestmark = pytest.mark.long

MakeTopic = Callable[..., str]


def test_end_is_the_high_watermark_above_an_open_transaction(clients: Clients, topic: MakeTopic, address: str) -> None:
    """Beside it the end of what may be read; a commit between the two is kept, and reading ends there."""
    name = topic()
    clients.send(name, [b"before"])
    producer = plain_producer(address, **{"transactional.id": name})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(name, value=b"open", partition=0)
    assert producer.flush(60) == 0
    clients.send(name, [b"behind"] * 7)
    group, place = f"g-{name}", Place(name, 0)
    member, heard = clients.joined(group, [name])
    given = heard.given[place]
    assert (given.high, given.readable_end, given.is_beyond) == (1, 1, False), "as long as nothing is committed"
    bounds: list[LogBounds] = []
    member.ends([place], lambda found, _: bounds.extend(found))
    clients.until(lambda: bounds, "bounds")
    assert bounds == [(place, 0, 9, 1)]
    assert clients.commit(member, Commit(name, 0, 5, "text")) is None
    clients.leave(member)
    member, heard = clients.joined(group, [name])
    given = heard.given[place]
    assert (given.high, given.readable_end, given.committed, given.is_beyond) == (9, 1, 5, False)
    producer.commit_transaction(60)
    clients.ended(heard, place, 10)
    assert heard.values() == [b"behind"] * 4
