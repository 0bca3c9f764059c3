"""What a lookup of topics reports of each, over a consumer that only has metadata."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import need_module
from upstream.kafka_client.lookups import topics_of


class Error:
    """One of the cluster's."""

    def __init__(self, name: str) -> None:
        self._name = name

    def name(self) -> str:
        """Its name."""
        return self._name

    def str(self) -> str:
        """Its text."""
        return f"said {self._name}"

    def fatal(self) -> bool:
        """Whether the client has ended."""
        return False


class Entry:
    """Metadata of one topic or partition."""

    def __init__(self, *, error: Error | None = None, leaders: tuple[int, ...] = ()) -> None:
        self.error = error
        self.partitions = {number: Partition(leader) for number, leader in enumerate(leaders)}
        self.topics: dict[str, Entry] = {}


class Partition:
    """Metadata of one partition."""

    def __init__(self, leader: int) -> None:
        self.leader = leader


class Consumer:
    """Answers with the metadata that it was given."""

    def __init__(self, topics: dict[str, Entry]) -> None:
        self._topics = topics

    def list_topics(self, topic: str | None = None, *, timeout: float) -> Any:
        """Return them."""
        found = Entry()
        found.topics = {name: each for name, each in self._topics.items() if topic in (None, name)}
        return found


@pytest.mark.parametrize(
    ("entry", "count", "code"),
    [
        (Entry(leaders=(1, 1)), 2, None),
        (Entry(leaders=(1, -1)), 2, "LEADER_NOT_AVAILABLE"),
        (Entry(error=Error("TOPIC_AUTHORIZATION_FAILED")), None, "TOPIC_AUTHORIZATION_FAILED"),
        (Entry(error=Error("UNKNOWN_TOPIC_OR_PART")), None, "UNKNOWN_TOPIC_OR_PART"),
        (Entry(), None, "UNKNOWN_TOPIC_OR_PART"),
        (None, None, "UNKNOWN_TOPIC_OR_PART"),
    ],
    ids=["fine", "leaderless", "denied", "unknown", "no partitions", "missing"],
)
def test_each_named_topic_has_its_own_trouble(entry: Entry | None, count: int | None, code: str | None) -> None:
    """Whatever is wrong with one topic, the other is found, and the failure has the first one's name."""
    need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
    topics = {"fine": Entry(leaders=(1,))} | ({"t": entry} if entry is not None else {})
    counts, failures = topics_of(Consumer(topics), ["t", "fine"], whole=True)
    assert counts == {"fine": 1} | ({} if count is None else {"t": count})
    assert {name: each.code for name, each in failures.items()} == ({} if code is None else {"t": code})
