"""Dead letters: groups that have some, a group's figures, and its dead letters page by page.

A page ends after so many dead letters looked at, or so many found, and says where the next one begins.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Generator, Iterator, Mapping

from msgspec.structs import asdict

from broker.errors import StoreError
from broker.format.message import LogMessage
from broker.format.numbers import whole_number
from broker.query import NotFound, QueryRefused, at_physical
from broker.queues.topics import Topic
from broker.retry.letters import DeadLetterFilter, Letter, groups_with_letters, letter_topic, letters, place_of
from broker.retry.redrive import Redrives
from broker.runtime.async_steps import run_async
from broker.store import Store
from proxy.operate.lookups.parameters import check_names
from proxy.operate.moments import parse_moment
from proxy.operate.views.dead_letters import (
    DeadLetterFigures,
    DeadLetterGroup,
    DeadLetterGroupsAnswer,
    DeadLetterKind,
    DeadLettersAnswer,
    DeadLetterView,
    RedrivenView,
)

LIMIT_DEFAULT = 100
LIMIT_MAX = 1000
PARAMETERS = ("group", "figures", "id", "topic", "reason", "action", "key", "from", "until", "cursor", "limit")
PAGE_LOOKED_AT = 5000
"""Dead letters that one page looks at."""
STEP_LETTERS = 64
KINDS_MAX = 50
"""Reasons and topics that figures name; the others are one."""


async def search(
    store: Store, redrives: Redrives, given: Mapping[str, str], *, now_ms: int
) -> DeadLetterGroupsAnswer | DeadLetterFigures | DeadLettersAnswer:
    """Return what a request asks for, giving way after each bounded piece of work.

    Raises:
        QueryRefused: A parameter makes no sense.
        NotFound: The group never had a dead letter.
    """
    check_names(given, PARAMETERS)
    await run_async(redrives.opening())
    group = given.get("group")
    if group is None:
        return DeadLetterGroupsAnswer(now_ms=now_ms, groups=group_views(store))
    if given.get("figures") == "true":
        return await run_async(figures(store, redrives, group, now_ms=now_ms))
    page = LetterPage(store, group, wanted_of(given, now_ms), cursor=given.get("cursor"), limit=limit_of(given))
    found = []
    for letter in page.found():
        if letter is None:
            await asyncio.sleep(0)
        else:
            found.append(describe(letter, earlier(store, redrives, letter)))
    return DeadLettersAnswer(
        now_ms=now_ms, group=group, looked_at=page.looked_at, cursor=page.cursor, dead_letters=found
    )


def wanted_of(given: Mapping[str, str], now_ms: int) -> DeadLetterFilter:
    """Return which dead letters a request names. Raises QueryRefused."""
    moments: dict[str, int | None] = {}
    for name in ("from", "until"):
        try:
            moments[name] = parse_moment(given[name], now_ms) if name in given else None
        except ValueError as error:
            raise QueryRefused(f"{name}: {error}") from error
    return DeadLetterFilter(
        id=given.get("id"),
        topic=given.get("topic"),
        reason=given.get("reason"),
        action=given.get("action"),
        key=given.get("key"),
        from_ms=moments["from"],
        until_ms=moments["until"],
    )


def limit_of(given: Mapping[str, str]) -> int:
    """Return how many dead letters a request wants. Raises QueryRefused."""
    text = given.get("limit", str(LIMIT_DEFAULT))
    limit = whole_number(text, 9)
    if not limit:
        raise QueryRefused(f"limit must be 1 to {LIMIT_MAX}, got {text!r}")
    return min(limit, LIMIT_MAX)


class LetterPage:
    """One page over a group's dead letters: those that are wanted, from a cursor on.

    Attributes:
        looked_at: How many dead letters were looked at.
        cursor: Where the next page begins; None after the last one.

    Raises:
        NotFound: The group never had a dead letter.
        QueryRefused: The cursor is none, or they are to have died after one moment and before an earlier one.
    """

    def __init__(self, store: Store, group: str, wanted: DeadLetterFilter, *, cursor: str | None, limit: int) -> None:
        if wanted.from_ms is not None and wanted.until_ms is not None and wanted.from_ms > wanted.until_ms:
            raise QueryRefused("`from` is later than `until`; swap them")
        self._store = store
        self._topic = _topic_of(store, group)
        self._wanted = wanted
        self._limit = limit
        self._start = place_of(cursor)
        self.looked_at = 0
        self.cursor: str | None = None

    def found(self) -> Iterator[Letter | None]:
        """Yield the dead letters that are wanted, and None after a bounded piece of work."""
        queue_id, offset = self._start
        found = 0
        for letter in letters(self._store, self._topic, queue_id=queue_id, offset=offset):
            if found >= self._limit or self.looked_at >= PAGE_LOOKED_AT:
                self.cursor = f"{letter.queue_id}:{letter.offset}"
                return
            self.looked_at += 1
            if self._wanted.matches(letter):
                found += 1
                yield letter
            if not self.looked_at % STEP_LETTERS:
                yield None

    def stop_before(self, letter: Letter) -> None:
        """Have the next page begin with this dead letter; the iteration does not continue."""
        self.cursor = f"{letter.queue_id}:{letter.offset}"


def describe(letter: Letter, redriven: RedrivenView | None) -> DeadLetterView:
    """Return what is shown of a dead letter, and of its last redrive."""
    message = letter.message
    if message is None:
        return DeadLetterView(queue=letter.queue_id, offset=letter.offset, readable=False)
    return DeadLetterView(
        queue=letter.queue_id,
        offset=letter.offset,
        readable=True,
        id=letter.id,
        unique_key=message.unique_key,
        key=letter.key,
        tags=message.properties.get("TAGS", ""),
        topic=letter.topic,
        origin_queue=letter.queue,
        reason=letter.reason,
        action=letter.action,
        attempts=letter.attempts,
        died_ms=message.store_ms,
        born_ms=message.born_ms,
        body_bytes=len(message.stored_body),
        cut="DLQ_CUT" in message.properties,
        redriven=redriven,
    )


def earlier(store: Store, redrives: Redrives, letter: Letter) -> RedrivenView | None:
    """Return when and as what a dead letter was redriven last; None when it was not."""
    made = redrives.earlier(letter)
    if made is None:
        return None
    try:
        message: LogMessage | None = at_physical(store, made.physical)
    except StoreError:
        message = None
    return RedrivenView(
        at_ms=made.stored_ms or None,
        topic=made.topic or None,
        queue=None if message is None else message.queue_id,
        offset=None if message is None else message.offset,
        id=None if message is None else message.id,
    )


def group_views(store: Store) -> list[DeadLetterGroup]:
    """Return the groups that have dead letters, with counts and the moments of the first and the last."""
    return [_group(store, group) for group in groups_with_letters(store)]


def _group(store: Store, group: str) -> DeadLetterGroup:
    topic = _topic_of(store, group)
    places = [(queue, offset) for queue in topic.queues if (offset := queue.max_offset) > queue.min_offset]
    first = [moment for queue, _ in places if (moment := _died(store, topic, queue.queue_id, queue.min_offset))]
    last = [moment for queue, end in places if (moment := _died(store, topic, queue.queue_id, end - 1))]
    return DeadLetterGroup(
        group=group,
        dead_letters=sum(queue.max_offset - queue.min_offset for queue in topic.queues),
        ever_total=sum(queue.max_offset for queue in topic.queues),
        first_ms=min(first, default=None),
        last_ms=max(last, default=None),
    )


def _died(store: Store, topic: Topic, queue_id: int, offset: int) -> int | None:
    for letter in letters(store, topic, queue_id=queue_id, offset=offset):
        return None if letter.message is None else letter.message.store_ms
    return None


def figures(store: Store, redrives: Redrives, group: str, *, now_ms: int) -> Generator[None, None, DeadLetterFigures]:
    """Count a group's dead letters by topic, reason and action, and how many were redriven, in steps of bounded work.

    Raises:
        NotFound: The group never had a dead letter.
    """
    counts = LetterCounts()
    for place, letter in enumerate(letters(store, _topic_of(store, group)), 1):
        counts.take(letter, is_redriven=letter.message is not None and redrives.earlier(letter) is not None)
        if not place % STEP_LETTERS:
            yield
    return counts.figures(_group(store, group), now_ms=now_ms)


class LetterCounts:
    """Counts dead letters by topic, reason and action."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str, str]] = Counter()
        self._redriven: Counter[tuple[str, str, str]] = Counter()
        self._actions: Counter[str] = Counter()
        self._unreadable = 0

    def take(self, letter: Letter, *, is_redriven: bool) -> None:
        """Count one."""
        if letter.message is None:
            self._unreadable += 1
            return
        kind = (letter.topic, letter.shared_reason, letter.action)
        if kind not in self._counts and len(self._counts) >= KINDS_MAX:
            kind = ("", "others", "")
        self._counts[kind] += 1
        self._actions[letter.action] += 1
        self._redriven[kind] += is_redriven

    def figures(self, group: DeadLetterGroup, *, now_ms: int) -> DeadLetterFigures:
        """Return the counts."""
        return DeadLetterFigures(
            **asdict(group),
            now_ms=now_ms,
            unreadable=self._unreadable,
            redriven=self._redriven.total(),
            kinds=[
                DeadLetterKind(
                    topic=topic,
                    reason=reason,
                    action=action,
                    count=count,
                    redriven=self._redriven[topic, reason, action],
                )
                for (topic, reason, action), count in self._counts.most_common()
            ],
            actions=dict(self._actions.most_common(KINDS_MAX)),
        )


def _topic_of(store: Store, group: str) -> Topic:
    """Return where a group's dead letters are. Raises NotFound."""
    topic = letter_topic(store, group)
    if topic is None:
        raise NotFound(f"group {group!r} never had a dead letter; `pyddmq dlq list` lists the groups that had")
    return topic
