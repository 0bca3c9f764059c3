"""The thread that commits for a member.

It waits for each answer of the coordinator, so that every answer belongs to its commit (librdkafka's callback names
none) and so that a commit counts while the member's own thread waits in a revoke. What is asked for meanwhile goes
together: of one partition the latest counts.

A member whose group is being shared out anew is told ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS although it goes on
being a member; Java's client says then that one may try again after the next poll. So a commit is tried again for as
long as the partition is the member's, within a bound. A commit for a partition that is not the member's is never sent:
the coordinator looks at the generation alone, and would take it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from upstream.kafka.link import Commit, Done, KafkaFailure, Place
from upstream.kafka_client.package import confluent, failure_of
from upstream.kafka_client.posting import Post
from upstream.kafka_client.troubles import Troubles

AGAIN = frozenset({"ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"})
ATTEMPTS = 20
AGAIN_SECONDS = 0.25
_PROBE_SECONDS = 1.0


class Asked(NamedTuple):
    """Commits that were asked for together.

    Attributes:
        commits: One for each partition.
        terms: The member's term of each partition: given again, it has another.
        done: Told how it ended.
    """

    commits: Sequence[Commit]
    terms: Sequence[int]
    done: Done


def not_ours() -> KafkaFailure:
    """What is said of a commit for a partition that the member does not have."""
    return KafkaFailure("ILLEGAL_GENERATION", "the partition is not this member's any more", fenced=True)


class CommitThread:
    """Commits through one consumer."""

    def __init__(
        self, group: str, consumer: Any, post: Post, troubles: Troubles, term_of: Callable[[Place], int | None]
    ) -> None:
        """Set up; `start` begins.

        Args:
            group: Names the thread.
            consumer: Where to commit.
            post: The way to the loop.
            troubles: Told that the cluster answers, or not.
            term_of: The member's present term of a partition; None: it has it not. Called in this thread.
        """
        self._consumer = consumer
        self._post = post
        self._troubles = troubles
        self._term_of = term_of
        self._asked: SimpleQueue[Asked | None] = SimpleQueue()
        self._open = 0
        self._changed = threading.Condition()
        self._stopped = threading.Event()
        self._package = confluent()
        self._thread = threading.Thread(target=self._live, daemon=True, name=f"kafka-commit-{group}")

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def put(self, asked: Asked) -> None:
        """Commit these. Called in the loop."""
        with self._changed:
            self._open += 1
        self._asked.put(asked)

    def settle(self, seconds: float) -> None:
        """Wait until all that was asked for has been answered, but no longer than so. Called in the member's thread."""
        with self._changed:
            self._changed.wait_for(lambda: not self._open, seconds)

    def stop(self) -> None:
        """End, and wait for that; what is still asked for is answered as not the member's."""
        self._stopped.set()
        self._asked.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _live(self) -> None:
        while not self._stopped.is_set():
            try:
                first = self._asked.get(timeout=_PROBE_SECONDS)
            except Empty:
                self._probe()
                continue
            if first is not None:
                self._serve([first, *self._further()])
        for asked in self._further():
            self._answer([asked], not_ours())

    def _further(self) -> list[Asked]:
        found = []
        while not self._asked.empty():
            asked = self._asked.get()
            if asked is not None:
                found.append(asked)
        return found

    def _serve(self, asked: list[Asked]) -> None:
        failure: KafkaFailure | None = None
        for attempt in range(ATTEMPTS):
            ours = [each for each in asked if self._is_ours(each)]
            if len(ours) < len(asked):
                self._answer([each for each in asked if each not in ours], not_ours())
                asked = ours
            if not asked:
                return
            failure = self._commit(asked)
            if failure is None or failure.code not in AGAIN or attempt == ATTEMPTS - 1:
                break
            if self._stopped.wait(AGAIN_SECONDS):
                break
        self._answer(asked, failure)

    def _is_ours(self, asked: Asked) -> bool:
        return all(
            self._term_of(Place(each.topic, each.partition)) == term
            for each, term in zip(asked.commits, asked.terms, strict=True)
        )

    def _commit(self, asked: list[Asked]) -> KafkaFailure | None:
        latest = {(each.topic, each.partition): each for one in asked for each in one.commits}
        make = self._package.TopicPartition
        offsets = [make(each.topic, each.partition, each.offset, each.metadata) for each in latest.values()]
        try:
            answers = self._consumer.commit(offsets=offsets, asynchronous=False)
        except self._package.KafkaException as error:
            return failure_of(error)
        except RuntimeError:
            return not_ours()  # The consumer is closed.
        self._troubles.answered()
        failures = [failure_of(each.error) for each in answers if each.error is not None]
        return next((each for each in failures if each.fenced), failures[0] if failures else None)

    def _answer(self, asked: list[Asked], failure: KafkaFailure | None) -> None:
        for each in asked:
            self._post(each.done, failure)
        with self._changed:
            self._open -= len(asked)
            self._changed.notify_all()

    def _probe(self) -> None:
        """Ask a cluster that was away whether it is there again."""
        if self._troubles.cut_off:
            try:
                self._consumer.list_topics(timeout=_PROBE_SECONDS)
            except (self._package.KafkaException, RuntimeError):
                return
            self._troubles.answered()
