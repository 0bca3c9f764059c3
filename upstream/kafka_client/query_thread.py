"""The thread that makes slow requests to a cluster; one for a client."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Any, NamedTuple

from upstream.kafka_client.package import confluent, failure_of
from upstream.kafka_client.posting import Post

_STALE = frozenset({"UNKNOWN_PARTITION", "UNKNOWN_TOPIC"})
"""By what the consumer remembers there is none. It remembers for three minutes, and queries no broker meanwhile."""

Question = Callable[[], Callable[[], None]]
"""Runs in the thread; what it returns is called in the loop. A `KafkaException` means that the query has failed."""

_Item = tuple[Question, Callable[[], None] | None]


class QueryConsumers(NamedTuple):
    """Give the consumers that query the cluster, in the thread of queries.

    Attributes:
        committed: One that reads committed records only.
        uncommitted: One that reads all: it finds the high watermark.
    """

    committed: Callable[[], Any]
    uncommitted: Callable[[], Any]


class QueryThread:
    """Questions one after the other, since each waits at most some seconds."""

    def __init__(self, cluster: str, post: Post, renew: Callable[[], object]) -> None:
        """Begin; `renew` is called in the thread when these consumers remember what is not so any more."""
        self._post = post
        self._renew = renew
        self._questions: SimpleQueue[tuple[Hashable, _Item] | None] = SimpleQueue()
        self._latest: dict[Hashable, _Item] = {}
        self._lock = threading.Lock()
        self._package = confluent()
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"kafka-ask-{cluster}")
        self._thread.start()

    def submit(
        self, question: Question, unanswered: Callable[[], None] | None = None, *, instead_of: Hashable = None
    ) -> None:
        """Run a query; `unanswered` is called in the loop when it fails.

        It takes the place of one with the same `instead_of` that has not begun. What is asked again and again would
        else wait in thousands while the cluster is away, and keep others waiting once it is back.
        """
        item = question, unanswered
        if instead_of is not None:
            with self._lock:
                waits = instead_of in self._latest
                self._latest[instead_of] = item
            if waits:
                return
        self._questions.put((instead_of, item))

    def close(self) -> None:
        """Run no further query. Does not wait for the one that runs."""
        self._questions.put(None)

    def _live(self) -> None:
        while (asked := self._questions.get()) is not None:
            with self._lock:
                question, unanswered = self._latest.pop(*asked)
            try:
                answer = question()
            # One that is closed raises RuntimeError, one that cannot be made KafkaUnusable; who asks later gets one.
            except Exception as error:
                if isinstance(error, self._package.KafkaException) and failure_of(error).code in _STALE:
                    self._renew()
                if unanswered is not None:
                    self._post(unanswered)
                continue
            self._post(answer)
