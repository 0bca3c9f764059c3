"""Dead letters of groups over Kafka: a group's figures, its dead letters page by page, and one page of a redrive."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
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
    WriteEnd,
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
from upstream.kafka.link import KafkaFailure, KafkaRecord, OutgoingRecord, TopicScan

FIGURES_SCANS = 4
"""Scans after which a page shows the list without figures."""
_OF_ONE_RECORD = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_RECORD", "INVALID_MSG", "INVALID_MSG_SIZE"})


async def search(
    letters: KafkaLetters, cluster: str, given: Mapping[str, str], *, now_ms: int
) -> DeadLetterFigures | DeadLettersAnswer:
    """Return what a request asks for, as `proxy.operate.lookups.dead_letters.search`.

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
                counted = await figures(letters, group, now_ms=now_ms)
                assert counted is not None, "the number of scans has no bound"
                return counted
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


async def figures(
    letters: KafkaLetters, group: str, *, now_ms: int, scans_max: int | None = None
) -> DeadLetterFigures | None:
    """Count a group's dead letters; None: that takes more than `scans_max` scans. Raises KafkaFailure."""
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


class KafkaRedrive:
    """One page of a redrive over Kafka: what is wanted is written, or only looked at when it is a dry run.

    Args:
        letters: The group's dead letters.
        in_kafka: What the configuration has in Kafka.
        runtime: The node's.
        cluster, group: Whose they are.
        to: Topic to send them to instead of their own.
        again: Whether those that were redriven before are meant, too.
        dry: Whether nothing is written.
    """

    def __init__(
        self,
        letters: KafkaLetters,
        in_kafka: InKafka,
        runtime: Runtime,
        *,
        cluster: str,
        group: str,
        to: str | None,
        again: bool,
        dry: bool,
    ) -> None:
        self._letters = letters
        self._in_kafka = in_kafka
        self._runtime = runtime
        self._cluster = cluster
        self._group = group
        self._to = to
        self._again = again
        self._dry = dry
        self._partitions: dict[str, int] = {}
        self._outcomes: dict[str, RedriveOutcome] = {}
        self._stopped: str | None = None

    async def run(self, wanted: DeadLetterFilter, cursor: str | None, limit: int) -> RedriveResult:
        """Redrive a page. Raises as `search`."""
        with kafka_errors(self._cluster):
            if self._dry:
                return await self._page(wanted, cursor, limit, None)
            async with self._letters.writing() as write:
                return await self._page(wanted, cursor, limit, write)

    async def _page(
        self,
        wanted: DeadLetterFilter,
        cursor: str | None,
        limit: int,
        write: Callable[[Sequence[OutgoingRecord]], Awaitable[WriteEnd]] | None,
    ) -> RedriveResult:
        await self._letters.open()
        page = await self._letters.page(wanted, cursor, limit)
        planned: dict[str, list[_Planned]] = {}
        for letter in page.letters:
            if self._letters.earlier(letter) is not None and not self._again:
                self._decide(letter, "already")
            elif (plan := await self._plan(letter)) is not None:
                planned.setdefault(plan.topic, []).append(plan)
        for plans in planned.values():
            if write is None:
                for each in plans:
                    self._decide(each.letter, "would_redrive", target=_target(each))
            elif self._stopped is None:
                await self._write(write, plans)
        undecided = next((each.id for each in page.letters if each.id not in self._outcomes), None)
        return redrive_result(
            self._group,
            [self._outcomes[each.id] for each in page.letters if each.id in self._outcomes],
            dry=self._dry,
            looked_at=page.looked_at,
            stopped=self._stopped,
            cursor=undecided or page.cursor,
        )

    async def _plan(self, letter: KafkaLetter) -> _Planned | None:
        """Return where a dead letter goes; None: it is refused."""
        try:
            name = self._to or letter.topic
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
        if any(each.topic == topic for each in self._in_kafka.all_letters()):
            raise RedriveRefused("system_topic", f"{topic} has dead letters of a group; pass another (--to)")
        if self._in_kafka.cluster_of(topic) != self._cluster:
            text = f"topic {topic} is not configured in Kafka cluster {self._cluster}; add it, or pass another (--to)"
            raise RedriveRefused("no_topic", text)
        if topic not in self._partitions:
            try:
                found = await self._letters.scan(TopicScan(topic, is_mark, bytes_max=0))
            except KafkaFailure as failure:
                if failure.code not in MISSING:
                    raise
                text = f"topic {topic} does not exist; create it, or pass another (--to)"
                raise RedriveRefused("no_topic", text) from failure
            self._partitions[topic] = len(found.bounds)
        return self._partitions[topic]

    async def _write(
        self, write: Callable[[Sequence[OutgoingRecord]], Awaitable[WriteEnd]], plans: Sequence[_Planned]
    ) -> None:
        """Write what goes to one topic, with its marks, as one transaction."""
        topic = plans[0].topic
        records = [redriven(each.letter, topic, each.partition) for each in plans]
        end = await write([*records, *(mark(each.letter, topic) for each in plans)])
        failure = end.failure
        if failure is None:
            for plan, offset in zip(plans, end.offsets, strict=False):
                self._decide(plan.letter, "redriven", target=_target(plan, offset))
                self._letters.note(plan.letter, topic, self._runtime.clock.wall_ms())
                self._runtime.metrics.counter(REDRIVEN, self._group).add()
        elif topic not in end.refused or failure.lost or failure.fenced or failure.unknown:
            doubt = "; some may have been redriven" if failure.unknown else ""
            self._stopped = f"Kafka cluster {self._cluster}: {failure}{doubt}"
        elif len(plans) > 1 and end.refused[topic].code in _OF_ONE_RECORD:
            for each in plans:
                if self._stopped is None:
                    await self._write(write, [each])
        else:
            for each in plans:
                self._refuse(each.letter, "unstorable", str(end.refused[topic]))

    def _refuse(self, letter: KafkaLetter, kind: str, why: str) -> None:
        if not self._dry:
            self._runtime.metrics.counter(REDRIVE_REFUSED, self._group, kind).add()
        self._decide(letter, "refused", kind=kind, why=why)

    def _decide(self, letter: KafkaLetter, outcome: str, **more: object) -> None:
        self._outcomes[letter.id] = outcome_of(_described(self._letters, letter), outcome, **more)


def _target(plan: _Planned, offset: int | None = None) -> RedriveTarget:
    target = RedriveTarget(topic=plan.topic)
    if plan.partition is not None:
        target = replace(target, queue=plan.partition)
    return target if offset is None or plan.partition is None else replace(target, offset=offset)
