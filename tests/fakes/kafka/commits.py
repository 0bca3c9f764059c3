"""Commits of a member of a Kafka in memory: one flight after the other, as `upstream.kafka_client.commits` has it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from tests.fakes.kafka.link import Answer, SimLink
from upstream.kafka.link import Commit, Done, KafkaFailure, KafkaPartition

AGAIN = frozenset({"ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"})
"""What a member is told that may go on being one."""
ATTEMPTS = 20
AGAIN_SECONDS = 0.25


class Asked(NamedTuple):
    """Commits that were asked for together, with the member's term of each partition."""

    commits: Sequence[Commit]
    terms: Sequence[int | None]
    done: Done


class SimCommits:
    """Those of one member."""

    def __init__(
        self,
        link: SimLink,
        put: Callable[[list[Commit]], Callable[[Callable[[KafkaFailure | None], None]], None]],
        term_of: Callable[[KafkaPartition], int | None],
        report: Callable[..., None],
        later: Callable[..., Any],
    ) -> None:
        """Set up.

        Args:
            link: The way.
            put: Returns what commits at the cluster, with the member's generation of now.
            term_of: The member's present term of a partition; None: it has it not.
            tell: Calls in the node.
            later: Calls some seconds later.
        """
        self._link = link
        self._put = put
        self._term_of = term_of
        self._report = report
        self._later = later
        self._asked: list[Asked] = []
        self._flight: object | None = None
        self.on_committed: Callable[[Iterable[KafkaPartition]], None] = lambda _: None
        self._flying: list[Asked] = []
        self._attempts = 0

    def ask(self, asked: Asked) -> None:
        """Commit these next."""
        self._asked.append(asked)
        self._send()

    def expelled(self) -> None:
        """The member was none for a while: what is under way is none of it any more."""
        self._flight = None
        self._asked[:0] = self._flying
        self._flying = []
        self._send()

    def _send(self) -> None:
        if self._flight is not None or not self._asked:
            return
        asked, self._asked = self._asked, []
        ours = [each for each in asked if self._is_ours(each)]
        for each in asked:
            if each not in ours:
                self._report(each.done, not_ours())
        if not ours:
            return
        flight = self._flight = object()
        self._flying = ours
        latest = {KafkaPartition(each.topic, each.partition): each for one in ours for each in one.commits}
        put = self._put(list(latest.values()))

        def request(answer: Answer) -> None:
            put(lambda failure: answer(ended, failure))

        def ended(failure: KafkaFailure | None) -> None:
            if self._flight is flight:
                self._ended(failure)

        self._link.ask(request, ended)

    def _ended(self, failure: KafkaFailure | None) -> None:
        asked, self._flying = self._flying, []
        if failure is not None and failure.code in AGAIN and self._attempts < ATTEMPTS:
            self._attempts += 1
            self._asked[:0] = asked
            wait = self._flight = object()
            self._later(AGAIN_SECONDS, self._again, wait)
            return
        self._attempts = 0
        self._flight = None
        if failure is None:
            self.on_committed(KafkaPartition(each.topic, each.partition) for one in asked for each in one.commits)
        for each in asked:
            self._report(each.done, failure)
        self._send()

    def _again(self, wait: object) -> None:
        if self._flight is wait:
            self._flight = None
            self._send()

    def _is_ours(self, asked: Asked) -> bool:
        return all(
            term is not None and self._term_of(KafkaPartition(each.topic, each.partition)) == term
            for each, term in zip(asked.commits, asked.terms, strict=True)
        )


def not_ours() -> KafkaFailure:
    """What is said of a commit for a partition that the member does not have."""
    return KafkaFailure("ILLEGAL_GENERATION", "the partition no longer belongs to this member", fenced=True)
