"""What waits on Kafka for a topic there, and its cancels and moves: as `/api/timers` has them of the store.

A node lists the partitions that it owns; a cancel reaches every owner.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from itertools import islice, pairwise
from typing import NamedTuple, TypeVar

from msgspec.structs import replace

from broker.query import NotFound, QueryRefused
from broker.scheduled.delay.delays import Delays
from broker.scheduled.recurring.occurrence import parse_id
from broker.scheduled.timer.handle import RecallHandle, parse_handle
from broker.transaction.outcomes import EndOutcome
from broker.views import DelayedMessage, LoopView, TimerView, TopicTimers, TransactionView
from conf.models import Config
from proxy.operate.lookups import delays
from proxy.operate.lookups.parameters import check_names, time_span
from proxy.operate.lookups.transactions import LIMIT_MAX, TransactionQuery
from proxy.operate.moments import moment_text
from proxy.operate.views.changes import RescheduleResult
from proxy.operate.views.waiting import DelaysAnswer, TimersAnswer, TransactionsAnswer, TransactionSettings
from upstream.kafka.waiting import records
from upstream.kafka.waiting.batches import identity_of
from upstream.kafka.waiting.cluster import KafkaWaiting
from upstream.kafka.waiting.records import (
    EndedMessage,
    HalfDecision,
    Identity,
    KeyState,
    PartitionStatus,
    WaitingRecord,
    half_handle,
    half_outcome,
    parse_half_handle,
)
from upstream.kafka.waiting.rows import CachedRecord

_CURSOR = re.compile(r"(\d{1,18})-((?:[0-9a-f]{2})+)")
_ANSWER_SECONDS = 10.0
STEP_ROWS = 200
"""Messages that one step of a listing reads: some milliseconds."""
_NEVER_MS = 1 << 62
_OF_ONE_MS_MAX = 100_000
"""A page begins at a millisecond, after some of the halves that were made in it; fewer than this."""
_OUTCOMES = {
    records.CANCELLED: "cancelled",
    records.MOVED: "rescheduled",
    records.TOO_LATE: "tooLate",
    records.UNKNOWN_ID: "unknown",
}
_TEXTS = {
    records.CANCELLED: "cancelled",
    records.TOO_LATE: "too late: it was delivered, or cancelled before",
    records.UNKNOWN_ID: "no such message waits, or its owner has not responded; try again",
}

Viewed = TypeVar("Viewed")


class NamedInKafka(NamedTuple):
    """A message that waits on Kafka, or a half."""

    waiting: KafkaWaiting
    topic: str
    id: str
    principal: str = ""

    @property
    def identity(self) -> Identity:
        """As its cluster knows it."""
        return Identity(self.topic, self.principal, self.id)


class WaitingInKafka:
    """That of one node's clusters."""

    def __init__(self, config: Config, waiting: Mapping[str, KafkaWaiting]) -> None:
        self._config = config
        self._waiting = waiting

    def named(self, name: str, topic: str | None) -> NamedInKafka | None:
        """Return which message is named by an id or a handle; None: it is the store's.

        Raises:
            QueryRefused: It is a handle, and of another topic than given: the right was looked at for that one.
        """
        handle = parse_handle(name)
        if handle is not None and handle.broker_name in self._waiting:
            if topic not in (None, handle.topic):
                raise QueryRefused(f"the handle is for topic {handle.topic}, not {topic}; omit the topic")
            topic, name = handle.topic, handle.unique_key
        cluster = None if topic is None else self._config.cluster_of(topic)
        if topic is None or cluster is None or cluster not in self._waiting:
            return None
        occurrence = parse_id(name)
        return NamedInKafka(self._waiting[cluster], topic, name if occurrence is None else occurrence.first.id)

    async def change(self, named: NamedInKafka, due_ms: int = 0) -> RescheduleResult:
        """Cancel a message, or move it, of any principal."""
        outcome = records.UNKNOWN_ID
        waiting = named.waiting
        for principal in waiting.statuses.principals(named.topic):
            answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            waiting.requests.ask(Identity(named.topic, principal, named.id), due_ms, _ANSWER_SECONDS, answer.set_result)
            outcome = await answer
            if outcome != records.UNKNOWN_ID:
                break
        text = _TEXTS.get(outcome) or f"rescheduled to {moment_text(due_ms)}"
        moved = outcome == records.MOVED
        cluster = waiting.settings.cluster
        return RescheduleResult(
            id=named.id,
            topic=named.topic,
            outcome=_OUTCOMES[outcome],
            due_ms=due_ms or None,
            new_id=named.id if moved else None,
            text=f"{named.id}: {text}",
            handle=str(RecallHandle(named.topic, cluster, due_ms + 1, named.id)) if moved else None,
        )

    def timers(
        self, topic: str, given: Mapping[str, str], *, limit: int, now_ms: int
    ) -> Generator[None, None, TimersAnswer] | None:
        """Return, in steps, a page of what waits for a topic, of all kinds; None: the topic is not in Kafka.

        Raises:
            QueryRefused: A parameter makes no sense.
        """
        cluster = self._config.cluster_of(topic) if topic in self._config.topics else None
        waiting = None if cluster is None else self._waiting.get(cluster)
        if waiting is None:
            return None
        check_names(given, ("topic", "from", "to", "limit", "cursor"))
        begin_ms, end_ms = time_span(given, now_ms, span_is_age=False)
        after = (begin_ms - 1, b"\xff") if begin_ms and "cursor" not in given else _cursor(given)
        return _timers(waiting, topic, after, end_ms, limit=limit, now_ms=now_ms)

    def delays(
        self, levels: Delays | None, given: Mapping[str, str], *, limit: int, now_ms: int
    ) -> Generator[None, None, DelaysAnswer]:
        """`GET /api/delays`: of a topic in Kafka what waits there, else the store's; levels count both.

        Raises:
            QueryRefused: A parameter makes no sense.
            NotFound: The level does not exist.
        """
        topic = given.get("topic", "")
        cluster = self._config.cluster_of(topic) if topic in self._config.topics else None
        waiting = None if cluster is None else self._waiting.get(cluster)
        if waiting is None:
            found = yield from delays.search(levels, given, limit=limit, now_ms=now_ms)
            return _with_levels(found, [row for each in self._waiting.values() for row in each.levels()])
        check_names(given, delays.PARAMETERS)
        asked = {name: text for name, text in given.items() if name == "level"}
        found = yield from delays.search(levels, asked, limit=limit, now_ms=now_ms)
        none = [
            replace(each, pending=0, refused=0, oldest_ms=None, next_due_ms=None, late_ms=0) for each in found.levels
        ]
        found = _with_levels(replace(found, levels=none), waiting.levels(topic))
        if given.get("messages") != "true":
            return found
        page = waiting.page(_cursor(given), limit, topic, int(asked.get("level", "0")))
        messages = yield from _views(waiting, page, _delayed)
        cursor = _following(page, limit)
        return replace(found, cut=cursor is not None, cursor=cursor, messages=messages)

    def due_counts(
        self, ends_ms: Sequence[int], *, halves: bool = False, topic: str = "", level: int = -1
    ) -> Generator[None, None, list[int]]:
        """Count what waits by due time, or halves by their next check, in the partitions of this node, in steps.

        Args:
            ends_ms: Ends of the ranges, ascending, ms since the epoch; the last range has no end.
            halves: Whether halves are counted.
            topic: Only this one; "": all.
            level: Only of this delay level; 0: of any; -1: all messages.
        """
        counts = []
        for begin_ms, end_ms in pairwise((0, *ends_ms, _NEVER_MS)):
            found = [
                each.count_due(begin_ms, end_ms, halves=halves, topic=topic, level=level)
                for each in self._waiting.values()
            ]
            counts.append(sum(found))
            yield
        return counts

    def partitions(self) -> dict[str, list[PartitionStatus]]:
        """Return each cluster's partitions: the last report of each, from the node that owns it."""
        return {name: each.statuses.partitions() for name, each in self._waiting.items()}

    # Transactions

    def half(self, name: str) -> NamedInKafka | None:
        """Return which half a handle names; None: it is the store's."""
        parsed = parse_half_handle(name)
        if parsed is None or parsed[0] not in self._waiting:
            return None
        cluster, identity = parsed
        return NamedInKafka(self._waiting[cluster], identity.topic, identity.id, identity.principal)

    async def decide(self, named: NamedInKafka, state: str) -> EndOutcome:
        """Have a half committed or rolled back in its producers' place, or a discarded one resumed."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        named.waiting.requests.decide(named.identity, HalfDecision("", state), _ANSWER_SECONDS, answer.set_result)
        return half_outcome(await answer)

    def found_half(self, named: NamedInKafka) -> TransactionView | None:
        """Return a half, decided or not; None: this node does not know it."""
        row = named.waiting.find(named.identity)
        return _half_view(named.waiting.settings.cluster, row) if row is not None and row.group else None

    def transactions(self, asked: TransactionQuery, now_ms: int) -> TransactionsAnswer | None:
        """Return halves of a topic, or one by its handle; None: it is not in Kafka.

        Raises:
            NotFound: This node does not know the half.
        """
        named, following = None if asked.id is None else self.half(asked.id), None
        cluster = self._config.cluster_of(asked.topic) if asked.topic in self._config.topics else None
        waiting = named.waiting if named is not None else self._waiting.get(cluster or "")
        if waiting is None:
            return None
        if named is not None:
            view = self.found_half(named)
            if view is None:
                raise NotFound(f"transaction {asked.id!r} does not exist here; ask the node that owns its partition")
            found = [view]
        else:
            found, following = _half_page(waiting, asked)
        statuses = waiting.statuses.partitions()
        oldest_ms = max((each.undecided_ms for each in statuses if each.undecided), default=None)
        settings = waiting.checks
        return TransactionsAnswer(
            now_ms=now_ms,
            undecided_total=sum(each.undecided for each in statuses),
            discarded_total=sum(each.discarded for each in statuses),
            oldest_ms=None if oldest_ms is None else now_ms - oldest_ms,
            settings=TransactionSettings(
                timeout_ms=settings.timeout_ms,
                interval_ms=settings.interval_ms,
                checks_max=settings.checks_max,
                discard_seconds=settings.age_seconds_max,
            ),
            transactions=found,
            next=following,
        )


def _timers(
    waiting: KafkaWaiting, topic: str, after: tuple[int, bytes], end_ms: int, *, limit: int, now_ms: int
) -> Generator[None, None, TimersAnswer]:
    page = [(at_ms, key) for at_ms, key in waiting.page(after, limit, topic) if at_ms < end_ms]
    pending = waiting.statuses.pending(topic)
    return TimersAnswer(
        now_ms=now_ms,
        pending_total=pending,
        topics=[TopicTimers(topic=topic, pending=pending)],
        timers=(yield from _views(waiting, page, _view)),
        cursor=_following(page, limit),
    )


def _views(
    waiting: KafkaWaiting, page: Sequence[tuple[int, bytes]], view: Callable[[CachedRecord], Viewed]
) -> Generator[None, None, list[Viewed]]:
    """Return how the messages of a page are shown: those that still wait."""
    found = []
    for number, (_, key) in enumerate(page, start=1):
        if (row := waiting.waits(key)) is not None:
            found.append(view(row))
        if number % STEP_ROWS == 0:
            yield
    return found


def _following(page: Sequence[tuple[int, bytes]], limit: int) -> str | None:
    """Return where the next page begins; None after the last one."""
    return f"{page[-1][0]}-{page[-1][1].hex()}" if limit and len(page) == limit else None


def _half_page(waiting: KafkaWaiting, asked: TransactionQuery) -> tuple[list[TransactionView], int | None]:
    """Return a page of the halves of a topic, and where the next one begins; None after the last one."""
    limit = min(asked.limit, LIMIT_MAX)
    begin_ms, skipped = divmod(asked.start, _OF_ONE_MS_MAX)
    state = KeyState.DISCARDED if asked.state == "discarded" else KeyState.HALF
    rows = waiting.halves(state, begin_ms, skipped + limit, asked.topic or "", asked.group or "")
    found = [_half_view(waiting.settings.cluster, row) for row in islice(rows, skipped, skipped + limit)]
    if not found or len(found) < limit:
        return found, None
    last_ms = found[-1].stored_ms
    seen = sum(each.stored_ms == last_ms for each in found) + (skipped if last_ms == begin_ms else 0)
    return found, last_ms * _OF_ONE_MS_MAX + seen


def _cursor(given: Mapping[str, str]) -> tuple[int, bytes]:
    """Return behind which row a page begins. Raises QueryRefused."""
    if not given.get("cursor"):
        return 0, b""
    cursor = _CURSOR.fullmatch(given["cursor"])
    if cursor is None:
        raise QueryRefused(f"invalid cursor {given['cursor']!r}; use the cursor returned by the previous page")
    return int(cursor[1]), bytes.fromhex(cursor[2])


def _with_levels(found: DelaysAnswer, rows: Sequence[tuple[int, int, int]]) -> DelaysAnswer:
    """Add what waits on Kafka to the levels of an answer."""
    levels = []
    for level in found.levels:
        here = [(count, due_ms) for number, count, due_ms in rows if number == level.level]
        dues = [due_ms for _, due_ms in here] + ([] if level.next_due_ms is None else [level.next_due_ms])
        due_ms = min(dues, default=None)
        levels.append(
            replace(
                level,
                pending=level.pending + sum(count for count, _ in here),
                next_due_ms=due_ms,
                late_ms=0 if due_ms is None else max(0, found.now_ms - due_ms),
            )
            if here
            else level
        )
    return replace(found, levels=levels, pending_total=sum(each.pending for each in levels))


def _delayed(row: CachedRecord) -> DelayedMessage:
    message = records.decode(row.value)
    assert isinstance(message, WaitingRecord), "a row that waits has a message"
    return DelayedMessage(
        topic=row.topic,
        queue=message.partition,
        id=identity_of(row).id,
        key="" if message.key is None else message.key.decode("utf-8", "replace"),
        stored_ms=message.at_ms,
        due_ms=row.at,
        level=message.level,
        offset=row.position,
    )


def _half_view(cluster: str, row: CachedRecord) -> TransactionView:
    message = records.decode(row.value)
    named = half_handle(cluster, identity_of(row))
    state, key, made_ms, queue = "committed", "", row.made, -1
    if isinstance(message, EndedMessage):
        state = "rolledBack" if message.outcome == records.ROLLED_BACK else "committed"
        made_ms = message.at_ms
    elif isinstance(message, WaitingRecord) and message.half is not None:
        state, queue = message.half.state, -1 if message.partition is None else message.partition
        key = "" if message.key is None else message.key.decode("utf-8", "replace")
    return TransactionView(
        state=state,
        id=named,
        handle=named,
        offset=row.position,
        topic=row.topic,
        queue=queue,
        group=row.group,
        key=key,
        checks=row.checks,
        check_out=False,
        remark="",
        born_ms=made_ms,
        stored_ms=made_ms,
        bytes=len(row.value),
        physical=row.position,
    )


def _view(row: CachedRecord) -> TimerView:
    message = records.decode(row.value)
    assert isinstance(message, WaitingRecord), "a row that waits has a message"
    occurrence = parse_id(message.loop) if message.loop else None
    loop = None
    if occurrence is not None and occurrence.is_loop:
        loop = LoopView(
            id=occurrence.first.id,
            made=occurrence.made,
            left=occurrence.left,
            interval=occurrence.interval,
            expire_ms=occurrence.expire_s * 1000,
        )
    return TimerView(
        topic=row.topic,
        queue=message.partition,
        id=identity_of(row).id,
        key="" if message.key is None else message.key.decode("utf-8", "replace"),
        stored_ms=message.at_ms,
        due_ms=row.at,
        delay_id=message.loop or None,
        rolls=0,
        loop=loop,
        physical=row.position,
    )
