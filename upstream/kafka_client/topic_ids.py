"""The ids of topics, which distinguish one that was created again from the one before.

Only administration finds them, which asks by a process of its own (`upstream.kafka_client.cluster_inspection`): one at
a time, for all groups of a node that ask meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from contextlib import suppress

from conf.secrets import SecretUnreadable
from upstream.kafka.cluster_facts import ClusterFacts
from upstream.kafka.link import TopicIds
from upstream.kafka_client.package import KafkaUnusable
from upstream.kafka_client.posting import Post

_NO_ID = "A" * 22
"""Zeros: brokers before Kafka 2.8 have none."""

_Asked = tuple[frozenset[str], TopicIds]


class TopicIdLookup:
    """Finds the ids of one cluster. `ask` is called in the loop's thread."""

    def __init__(self, look: Callable[[Collection[str]], ClusterFacts], post: Post) -> None:
        """Set up.

        Args:
            look: Inspects topics, by a process. Raises KafkaUnusable and SecretUnreadable.
            post: The way to the loop.
        """
        self._look = look
        self._post = post
        self._asked: list[_Asked] = []
        self._is_running = False

    def ask(self, topics: Collection[str], reported: TopicIds) -> None:
        """Find the ids of topics; `reported` is not called where the cluster does not respond."""
        self._asked.append((frozenset(topics), reported))
        if not self._is_running:
            self._begin()

    def _begin(self) -> None:
        # What is asked from here on is answered by the next process.
        asked, self._asked = self._asked, []
        self._is_running = True
        threading.Thread(target=self._find, args=(asked,), daemon=True, name="kafka-topic-ids").start()

    def _find(self, asked: list[_Asked]) -> None:
        facts = ClusterFacts(trouble="unusable")
        with suppress(KafkaUnusable, SecretUnreadable):
            facts = self._look(frozenset().union(*(topics for topics, _ in asked)))
        self._post(self._found, facts, asked)

    def _found(self, facts: ClusterFacts, asked: list[_Asked]) -> None:
        self._is_running = False
        if not facts.trouble:
            ids = {name: each.id for name, each in facts.topics.items() if each.id not in {"", _NO_ID}}
            for topics, reported in asked:
                reported({name: ids[name] for name in topics if name in ids})
        if self._asked:
            self._begin()
