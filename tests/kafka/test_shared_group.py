"""A group in which another program consumes, on a real Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer

from tests.kafka_world import Clients
from tests.patient import until

pytestmark = pytest.mark.long


@pytest.fixture
def by_range(address: str) -> Iterator[Callable[[str, str], None]]:
    """Starts another program's consumer; it is polled until the test is over."""
    over = threading.Event()
    threads: list[threading.Thread] = []

    def live(consumer: Any) -> None:
        while not over.is_set():
            consumer.poll(0.1)
        consumer.close()

    def start(group: str, topic: str) -> None:
        given: list[Any] = []
        consumer = Consumer(
            {"bootstrap.servers": address, "group.id": group, "partition.assignment.strategy": "range", "log_level": 0}
        )
        consumer.subscribe([topic], on_assign=lambda _, partitions: given.append(partitions))
        threads.append(threading.Thread(target=live, args=(consumer,)))
        threads[-1].start()
        until(lambda: given, "its partitions")

    yield start
    over.set()
    for each in threads:
        each.join(60)


def test_program_that_consumes_by_range_is_named(
    clients: Clients, topic: Callable[..., str], by_range: Callable[[str, str], None]
) -> None:
    """The member cannot join beside it, and says what to stop."""
    name = topic(2)
    by_range(f"g-{name}", name)
    _, heard = clients.join(f"g-{name}", [name])
    clients.until(lambda: heard.troubles, "a trouble")
    assert "another program consumes in this group with an assignment strategy" in str(heard.troubles[0])
    assert heard.given == {}
