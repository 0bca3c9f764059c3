"""Dead letters of groups over Kafka: a group's figures, its dead letters page by page, and one page of a redrive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import NamedTuple

from msgspec.structs import replace

from broker.query import NotFound
from broker.retry.letters import DeadLetterFilter
from broker.retry.metrics import REDRIVE_REFUSED, REDRIVEN
from broker.retry.redrive import RedriveRefused
from broker.runtime.bundle import Runtime
from proxy.node.kafka_letters import (
    SCAN_BYTES,
    KafkaLetter,
    KafkaLetters,
    LetterWriting,
    is_mark,
    letter_of,
    mark,
    redriven,
)
from proxy.operate.lookups.dead_letters import PARAMETERS, LetterCounts, describe, limit_of, wanted_of
from proxy.operate.lookups.in_kafka import InKafka
from proxy.operate.lookups.messages_in_kafka import MISSING, kafka_errors
from proxy.operate.lookups.parameters import check_names
from proxy.operate.lookups.redrives import outcome_of, redrive_result
from proxy.operate.views.dead_letters import (
    DeadLetterFigures,
    DeadLetterGroup,
    DeadLettersAnswer,
    DeadLetterView,
    RedrivenView,
    RedriveOutcome,
    RedriveResult,
    RedriveTarget,
)
from upstream.kafka.link import KafkaFailure, KafkaRecord, TopicScan

_OF_ONE_RECORD = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG", "INVALID_MSG_SIZE"})


async def search(
    letters: KafkaLetters, cluster: str, given: Mapping[str, str], *, now_ms: int, scans_max: int | None = None
) -> DeadLetterFigures | DeadLettersAnswer | None:
    """Return what a request asks for, as `proxy.operate.lookups.dead_letters.search`; None: figures take too long.

    Raises:
        QueryRefused: A parameter makes no sense.
        NotFound: The group has no topic of dead letters.
        ClusterUnavailable: The cluster does not respond, or refuses.
    """
    check_names(given, PARAMETERS)
    group = given["group"]
    try:
        with kafka_errors(cluster):
            if given.get("figures") == "true":
                return await _figures(letters, group, now_ms=now_ms, scans_max=scans_max)
            await letters.open()
            page = await letters.page(wanted_of(given, now_ms), given.get("cursor"), limit_of(given))
    except NotFound as error:
        raise NotFound(f"group {group!r} has no dead letters: {error}") from error
    return DeadLettersAnswer(
        now_ms=now_ms,
        group=group,
        looked_at=page.looked_at,
        cursor=page.cursor,
        dead_letters=[_described(letters, each) for each in page.letters],
    )


def _described(letters: KafkaLetters, letter: KafkaLetter) -> DeadLetterView:
    earlier = letters.earlier(letter)
    if earlier is None:
        return describe(letter, None)
    view = RedrivenView(at_ms=earlier.stored_ms, topic=earlier.topic or None, queue=None, offset=None, id=None)
    return describe(letter, view)


async def _figures(
    letters: KafkaLetters, group: str, *, now_ms: int, scans_max: int | None
) -> DeadLetterFigures | None:
    bounds = await letters.open()
    counting = _Counting(letters)
    place: tuple[int, int] | None = (0, 0)
    scans = 0
    while place is not None:
        if scans == scans_max:
            return None
        found = await letters.scan(TopicScan(letters.topic, counting.take, begin=place, bytes_max=SCAN_BYTES))
        place, scans = found.cursor, scans + 1
    present = len(counting.moments_ms)
    about = DeadLetterGroup(
        group=group,
        dead_letters=present,
        ever_total=present + sum(low for low, _ in bounds.values()),
        first_ms=min(counting.moments_ms, default=None),
        last_ms=max(counting.moments_ms, default=None),
    )
    return counting.counts.figures(about, now_ms=now_ms)


class _Counting:
    """Counts dead letters that are looked at; called in another thread."""

    def __init__(self, letters: KafkaLetters) -> None:
        self._letters = letters
        self.counts = LetterCounts()
        self.moments_ms: list[int] = []

    def take(self, record: KafkaRecord) -> bool:
        """Count a record, which is not wanted itself."""
        if not is_mark(record):
            letter = letter_of(record)
            self.counts.take(letter, is_redriven=self._letters.earlier(letter) is not None)
            self.moments_ms.append(max(0, record.timestamp_ms))
        return False


class _Planned(NamedTuple):
    letter: KafkaLetter
    topic: str
    partition: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaRedrive:
    """One page of a redrive over Kafka: what is wanted is written, or only looked at when it is a dry run.

    Attributes:
        letters: The group's dead letters.
        in_kafka: What the configuration has in Kafka.
        runtime: The node's.
        cluster: Of the group.
        group: Whose they are.
        to: Topic to send them to instead of their own.
        again: Whether those that were redriven before are meant, too.
        dry: Whether nothing is written.
    """

    letters: KafkaLetters
    in_kafka: InKafka
    runtime: Runtime
    cluster: str
    group: str
    to: str | None
    again: bool
    dry: bool
    _partitions: dict[str, int] = field(default_factory=dict)
    _outcomes: dict[str, RedriveOutcome] = field(default_factory=dict)

    async def run(self, wanted: DeadLetterFilter, cursor: str | None, limit: int) -> RedriveResult:
        """Redrive a page. Raises as `search`."""
        with kafka_errors(self.cluster):
            if self.dry:
                return await self._page(wanted, cursor, limit, None)
            async with self.letters.writing() as writing:
                return await self._page(wanted, cursor, limit, writing)

    async def _page(
        self, wanted: DeadLetterFilter, cursor: str | None, limit: int, writing: LetterWriting | None
    ) -> RedriveResult:
        await self.letters.open()
        page = await self.letters.page(wanted, cursor, limit)
        planned: dict[str, list[_Planned]] = {}
        for letter in page.letters:
            if self.letters.earlier(letter) is not None and not self.again:
                self._decide(letter, "already")
            elif (plan := await self._plan(letter)) is not None:
                planned.setdefault(plan.topic, []).append(plan)
        stopped = None
        for plans in planned.values():
            if writing is None:
                for each in plans:
                    self._decide(each.letter, "would_redrive", target=_target(each))
            else:
                stopped = stopped or await self._write(writing, plans)
        undecided = next((each.id for each in page.letters if each.id not in self._outcomes), None)
        return redrive_result(
            self.group,
            [self._outcomes[each.id] for each in page.letters if each.id in self._outcomes],
            dry=self.dry,
            looked_at=page.looked_at,
            stopped=stopped,
            cursor=undecided or page.cursor,
        )

    async def _plan(self, letter: KafkaLetter) -> _Planned | None:
        """Return where a dead letter goes; None: it is refused."""
        name = self.to or letter.topic
        try:
            if self.to is None and name and not self.in_kafka.is_read_by(self.group, name):
                # Any program can write to the topic of dead letters.
                text = f"group {self.group} does not subscribe to topic {name}; pass a topic (--to)"
                raise RedriveRefused("no_topic", text)
            count = await self._partitions_of(name)
        except RedriveRefused as refusal:
            self._refuse(letter, refusal.kind, str(refusal))
            return None
        own = letter.queue if name == letter.topic else None
        return _Planned(letter, name, own if own is not None and own < count else None)

    async def _partitions_of(self, topic: str) -> int:
        """Return how many partitions a target has. Raises RedriveRefused, KafkaFailure."""
        if not topic:
            raise RedriveRefused("origin_unknown", "the dead letter does not contain its topic; pass one (--to)")
        if self.in_kafka.has_letters(topic):
            raise RedriveRefused("system_topic", f"{topic} has dead letters of a group; pass another (--to)")
        if self.in_kafka.cluster_of(topic) != self.cluster:
            text = f"topic {topic} is not configured in Kafka cluster {self.cluster}; add it, or pass another (--to)"
            raise RedriveRefused("no_topic", text)
        if topic not in self._partitions:
            try:
                found = await self.letters.scan(TopicScan(topic, is_mark, bytes_max=0))
            except KafkaFailure as failure:
                if failure.code not in MISSING:
                    raise
                text = f"topic {topic} does not exist; create it, or pass another (--to)"
                raise RedriveRefused("no_topic", text) from failure
            self._partitions[topic] = len(found.bounds)
        return self._partitions[topic]

    async def _write(self, writing: LetterWriting, plans: Sequence[_Planned]) -> str | None:
        """Write what goes to one topic, with marks, as one transaction; returns why the redrive stops, if it does."""
        topic = plans[0].topic
        records = [redriven(each.letter, topic, each.partition) for each in plans]
        end = await writing.write([*records, *(mark(each.letter, topic) for each in plans)])
        failure = end.failure
        if failure is not None and failure.unknown:
            failure = await self._settled(writing, plans, failure)
        if failure is None:
            for plan, offset in zip_longest(plans, end.offsets[: len(plans)]):
                self._decide(plan.letter, "redriven", target=_target(plan, offset))
                self.letters.note(plan.letter, topic, self.runtime.clock.wall_ms())
                self.runtime.metrics.counter(REDRIVEN, self.group).add()
        elif topic not in end.refused or failure.lost or failure.fenced or failure.unknown:
            doubt = "; some may have been redriven" if failure.unknown else ""
            return f"Kafka cluster {self.cluster}: {failure}{doubt}"
        elif len(plans) > 1 and end.refused[topic].code in _OF_ONE_RECORD:
            stopped = None
            for each in plans:
                stopped = stopped or await self._write(writing, [each])
            return stopped
        else:
            for each in plans:
                self._refuse(each.letter, "unstorable", str(end.refused[topic]))
        return None

    async def _settled(
        self, writing: LetterWriting, plans: Sequence[_Planned], failure: KafkaFailure
    ) -> KafkaFailure | None:
        """Find out by the marks whether a transaction of unknown outcome was committed; None: it was."""
        before = [self.letters.earlier(each.letter) for each in plans]
        try:
            await writing.begin()
            await self.letters.open()
        except KafkaFailure:
            return failure
        now = [self.letters.earlier(each.letter) for each in plans]
        if any(new is not None and new is not old for old, new in zip(before, now, strict=True)):
            return None
        return KafkaFailure(failure.code, "the transaction was not committed", lost=True)

    def _refuse(self, letter: KafkaLetter, kind: str, why: str) -> None:
        if not self.dry:
            self.runtime.metrics.counter(REDRIVE_REFUSED, self.group, kind).add()
        self._decide(letter, "refused", kind=kind, why=why)

    def _decide(self, letter: KafkaLetter, outcome: str, **more: object) -> None:
        self._outcomes[letter.id] = outcome_of(_described(self.letters, letter), outcome, **more)


def _target(plan: _Planned, offset: int | None = None) -> RedriveTarget:
    target = RedriveTarget(topic=plan.topic)
    if plan.partition is not None:
        target = replace(target, queue=plan.partition)
    return target if offset is None or plan.partition is None else replace(target, offset=offset)
