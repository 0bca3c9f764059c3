"""`MessageQueue`: the name of one queue of one topic, as RocketMQ's client writes and sorts it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

BROKER_NAME = "broker-0"
"""Name of the broker in queue names unless a program gives another: that of `brokerName` in the configuration."""


class MessageQueue(NamedTuple):
    """One queue. Compares by topic, broker name and queue id, in this order (RocketMQ: MessageQueue.compareTo)."""

    topic: str
    broker_name: str
    queue_id: int

    def __str__(self) -> str:
        """Java's `toString`, which consistent hashing hashes."""
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"


def queue_names(topic: str, broker_name: str, queue_ids: Iterable[int]) -> list[MessageQueue]:
    """Name some queues of a topic."""
    return [MessageQueue(topic, broker_name, queue_id) for queue_id in queue_ids]
