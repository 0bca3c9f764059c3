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
from broker.retry.letters import DeadLetterFilter, Letter, groups_with_letters, letter_topic, letters
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
    page = LetterPage(store, group, _wanted(given, now_ms), cursor=given.get("cursor"), limit=_limit(given))
    found = []
    for letter in page.found():
        if letter is None:
            await asyncio.sleep(0)
        else:
            found.append(describe(store, redrives, letter))
    return DeadLettersAnswer(
        now_ms=now_ms, group=group, looked_at=page.looked_at, cursor=page.cursor, dead_letters=found
    )


def _wanted(given: Mapping[str, str], now_ms: int) -> DeadLetterFilter:
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


def _limit(given: Mapping[str, str]) -> int:
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
        self._start = _place(cursor)
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


def _place(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    queue, _, offset = cursor.partition(":")
    place = whole_number(queue), whole_number(offset)
    if place[0] is None or place[1] is None:
        raise QueryRefused(f"invalid cursor {cursor!r}; use the cursor returned by the previous page")
    return place[0], place[1]


def describe(store: Store, redrives: Redrives, letter: Letter) -> DeadLetterView:
    """Return what is shown of a dead letter."""
    message = letter.message
    if message is None:
        return DeadLetterView(queue=letter.queue_id, offset=letter.offset, readable=False)
    return DeadLetterView(
        queue=letter.queue_id,
        offset=letter.offset,
        readable=True,
        id=message.id,
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
        redriven=_earlier(store, redrives, letter),
    )


def _earlier(store: Store, redrives: Redrives, letter: Letter) -> RedrivenView | None:
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
    counts: Counter[tuple[str, str, str]] = Counter()
    redriven: Counter[tuple[str, str, str]] = Counter()
    actions: Counter[str] = Counter()
    unreadable = 0
    for place, letter in enumerate(letters(store, _topic_of(store, group)), 1):
        if letter.message is None:
            unreadable += 1
        else:
            kind = (letter.topic, letter.shared_reason, letter.action)
            if kind not in counts and len(counts) >= KINDS_MAX:
                kind = ("", "others", "")
            counts[kind] += 1
            actions[letter.action] += 1
            redriven[kind] += redrives.earlier(letter) is not None
        if not place % STEP_LETTERS:
            yield
    return DeadLetterFigures(
        **asdict(_group(store, group)),
        now_ms=now_ms,
        unreadable=unreadable,
        redriven=redriven.total(),
        kinds=[
            DeadLetterKind(
                topic=topic, reason=reason, action=action, count=count, redriven=redriven[topic, reason, action]
            )
            for (topic, reason, action), count in counts.most_common()
        ],
        actions=dict(actions.most_common(KINDS_MAX)),
    )


def _topic_of(store: Store, group: str) -> Topic:
    """Return where a group's dead letters are. Raises NotFound."""
    topic = letter_topic(store, group)
    if topic is None:
        raise NotFound(f"group {group!r} never had a dead letter; `pyddmq dlq list` lists the groups that had")
    return topic
