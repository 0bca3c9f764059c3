"""The thread that makes slow requests to a cluster; one for a client."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, NamedTuple

from upstream.kafka_client.package import confluent, failure_of
from upstream.kafka_client.posting import Post

_STALE = frozenset({"UNKNOWN_PARTITION", "UNKNOWN_TOPIC"})
"""By what the consumer remembers there is none. It remembers for three minutes, and asks no broker meanwhile."""

Question = Callable[[], Callable[[], None]]
"""Asks in the thread; what it returns is called in the loop. A `KafkaException` of it means that there is no answer."""


class Askers(NamedTuple):
    """Give the consumers that ask, in the thread that asks.

    Attributes:
        committed: One that reads committed records only.
        uncommitted: One that reads all: it finds the high watermark.
    """

    committed: Callable[[], Any]
    uncommitted: Callable[[], Any]


class Asking:
    """Questions one after the other, since each waits at most some seconds."""

    def __init__(self, cluster: str, post: Post, renew: Callable[[], object]) -> None:
        """Begin; `renew` is called in the thread when the consumers that ask remember what is not so any more."""
        self._post = post
        self._renew = renew
        self._questions: SimpleQueue[tuple[Question, Callable[[], None] | None] | None] = SimpleQueue()
        self._package = confluent()
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"kafka-ask-{cluster}")
        self._thread.start()

    def ask(self, question: Question, unanswered: Callable[[], None] | None = None) -> None:
        """Ask; `unanswered` is called in the loop where there is no answer."""
        self._questions.put((question, unanswered))

    def close(self) -> None:
        """Ask nothing more. Does not wait for what is being asked."""
        self._questions.put(None)

    def _live(self) -> None:
        while (asked := self._questions.get()) is not None:
            question, unanswered = asked
            try:
                answer = question()
            # A consumer that is closed raises RuntimeError.
            except (self._package.KafkaException, RuntimeError) as error:
                if isinstance(error, self._package.KafkaException) and failure_of(error).code in _STALE:
                    self._renew()
                if unanswered is not None:
                    self._post(unanswered)
                continue
            self._post(answer)
