"""Commits of a member, in its thread.

One is on its way at a time; what is asked for meanwhile goes together, and of one partition the latest counts.
librdkafka's callback belongs to the one that has its offsets: of a member that was expelled meanwhile an answer may
never come, and must not be taken for that of another, or waited for forever. Within a revoke no callback is heard, so
there the thread waits for each answer.

A member whose group is being shared out again receives ILLEGAL_GENERATION or REBALANCE_IN_PROGRESS although it
continues being a member; Java's client says then that one may try again after the next poll. So a commit is tried again
for as long as the partition is the member's, within a bound. A commit for a partition that is not the member's is never
sent: the coordinator looks at the generation alone, and would take it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from broker.runtime.seams import Clock
from upstream.kafka.link import Commit, Done, KafkaFailure, KafkaPartition
from upstream.kafka_client.package import confluent, failure_of
from upstream.kafka_client.posting import Post
from upstream.kafka_client.troubles import ClientTroubles

AGAIN = frozenset({"ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"})
ATTEMPTS = 20
AGAIN_SECONDS = 0.25
UNHEARD_SECONDS = 90.0
"""librdkafka gives a request up after 60 s (socket.timeout.ms). An answer that has not come by then never will, and
nothing else would be committed any more."""


class Flight(NamedTuple):
    """Commits on their way together.

    Attributes:
        offsets: Topic, partition and offset of each, by which the answer is known.
        asked: Who waits for it; empty once they were asked again.
    """

    offsets: frozenset[tuple[str, int, int]]
    asked: list[CommitRequest]


class CommitRequest(NamedTuple):
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
    return KafkaFailure("ILLEGAL_GENERATION", "the partition no longer belongs to this member", fenced=True)


class ConsumerCommits:
    """Those of one consumer. All calls are made in the member's thread."""

    def __init__(
        self, post: Post, troubles: ClientTroubles, clock: Clock, term_of: Callable[[KafkaPartition], int | None]
    ) -> None:
        """Set up; `consumer` is given afterwards, and who hears which partitions have a commit (`on_committed`).

        Args:
            post: The way to the loop.
            troubles: Told that the cluster answers, or not.
            clock: For attempts again.
            term_of: The member's present term of a partition; None: it has it not.
        """
        self.consumer: Any = None
        self.on_committed: Callable[[Iterable[KafkaPartition]], None] = lambda _: None
        self._post = post
        self._troubles = troubles
        self._clock = clock
        self._term_of = term_of
        self._asked: list[CommitRequest] = []
        self._flights: deque[Flight] = deque()
        self._sent_at = 0.0
        self._attempts = 0
        self._not_before = 0.0
        self._package = confluent()

    def put(self, asked: CommitRequest) -> None:
        """Commit these with the next round."""
        self._asked.append(asked)

    def round(self) -> None:
        """Send what is asked for, unless something is on its way."""
        now = self._clock.monotonic()
        if self._flights and now >= self._sent_at + UNHEARD_SECONDS:
            unheard = [each for flight in self._flights for each in flight.asked]
            self._flights.clear()
            self._report(unheard, KafkaFailure("TIMED_OUT", "no answer to a commit", unknown=True))
        if self._asked and not any(each.asked for each in self._flights) and now >= self._not_before:
            self._send(wait=False)

    def finish(self) -> None:
        """Send what is asked for and what is on its way, and wait for the answers; for the end of a revoke."""
        # The answer is not heard before the revoke has ended: the same once more, in the same order.
        self._ask_again()
        if self._asked:
            self._send(wait=True)

    def expelled(self) -> None:
        """The member was none for a while: what is on its way may never be answered, and is none of it any more."""
        self._ask_again()

    def _ask_again(self) -> None:
        for flight in self._flights:
            self._asked[:0] = flight.asked
            flight.asked.clear()

    def answered(self, error: Any, partitions: Sequence[Any]) -> None:
        """Hear how what was on its way ended (librdkafka's `on_commit`)."""
        reported = frozenset((each.topic, each.partition, each.offset) for each in partitions)
        # The latest, where several commit the same: the answer to an earlier one is true of it, too.
        fitting = [place for place, each in enumerate(self._flights) if each.offsets == reported or not reported]
        if not fitting:
            return  # The answer to an abandoned one.
        place = fitting[-1]
        for _ in range(place):
            # Answers come in order: of those before it none will.
            self._asked[:0] = self._flights.popleft().asked
        asked = self._flights.popleft().asked
        if asked:
            failures = [] if error is None else [failure_of(error)]
            self._ended(asked, failures + [failure_of(each.error) for each in partitions if each.error is not None])

    def close(self) -> None:
        """Answer what is left: it is not known to have happened, and the member is none any more."""
        left = [each for flight in self._flights for each in flight.asked] + self._asked
        self._flights.clear()
        self._asked = []
        self._report(left, not_ours())

    def _send(self, *, wait: bool) -> None:
        ours = [each for each in self._asked if self._is_ours(each)]
        self._report([each for each in self._asked if each not in ours], not_ours())
        self._asked = []
        if not ours:
            return
        latest = {(each.topic, each.partition): each for one in ours for each in one.commits}
        make = self._package.TopicPartition
        offsets = [make(*each) for each in latest.values()]
        try:
            answers = self.consumer.commit(offsets=offsets, asynchronous=not wait)
        except self._package.KafkaException as error:
            self._ended(ours, [failure_of(error)])
            return
        if wait:
            self._ended(ours, [failure_of(each.error) for each in answers if each.error is not None])
        else:
            names = frozenset((each.topic, each.partition, each.offset) for each in latest.values())
            self._flights.append(Flight(names, ours))
            self._sent_at = self._clock.monotonic()

    def _is_ours(self, asked: CommitRequest) -> bool:
        return all(
            self._term_of(KafkaPartition(each.topic, each.partition)) == term
            for each, term in zip(asked.commits, asked.terms, strict=True)
        )

    def _ended(self, asked: list[CommitRequest], failures: list[KafkaFailure]) -> None:
        failure = next((each for each in failures if each.fenced), failures[0] if failures else None)
        if failure is None:
            self._troubles.answered()
            self.on_committed(KafkaPartition(each.topic, each.partition) for one in asked for each in one.commits)
        elif failure.code in AGAIN and self._attempts < ATTEMPTS:
            self._attempts += 1
            self._not_before = self._clock.monotonic() + AGAIN_SECONDS
            self._asked[:0] = asked
            return
        self._attempts = 0
        self._not_before = 0.0
        self._report(asked, failure)

    def _report(self, asked: list[CommitRequest], failure: KafkaFailure | None) -> None:
        for each in asked:
            self._post(each.done, failure)
