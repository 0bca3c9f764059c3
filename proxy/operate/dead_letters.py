"""Dead letters for the admin port: lists, figures and redrives as JSON documents, in steps of bounded work.

docs/admin.md describes the documents. A page of a list or of a redrive ends after so many dead letters looked at, or
so many found, and says where the next one begins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from broker.errors import StoreError
from broker.format.message import Message
from broker.query import NotFound, QueryRefused, at_physical
from broker.queues.topics import Topic
from broker.retry.letters import Letter, Wanted, groups_with_letters, letter_topic, letters
from broker.retry.redrive import RedriveRefused, Redrives
from broker.store import Store

PAGE_LOOKED_AT = 5000
"""Dead letters that one page looks at."""
STEP_LETTERS = 64
KINDS_MAX = 50
"""Reasons and topics that figures name; the others are one."""

Document = dict[str, Any]


class LetterPage:
    """One page over a group's dead letters: those that are wanted, from a cursor on.

    Attributes:
        looked_at: How many dead letters were looked at.
        cursor: Where the next page begins; None after the last one.

    Raises:
        NotFound: The group never had a dead letter.
        QueryRefused: The cursor is none, or they are to have died after one moment and before an earlier one.
    """

    def __init__(self, store: Store, group: str, wanted: Wanted, *, cursor: str | None, limit: int) -> None:
        if wanted.from_ms is not None and wanted.until_ms is not None and wanted.from_ms > wanted.until_ms:
            raise QueryRefused("`from` is later than `until`; turn them round")
        topic = letter_topic(store, group)
        if topic is None:
            raise NotFound(f"group {group!r} never had a dead letter; `pyddmq dlq list` names the groups that had")
        self._store = store
        self._topic = topic
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
        """Have the next page begin with this dead letter; the iteration is not gone on with."""
        self.cursor = f"{letter.queue_id}:{letter.offset}"


def _place(cursor: str | None) -> tuple[int, int]:
    if cursor is None:
        return 0, 0
    queue, _, offset = cursor.partition(":")
    if not (queue.isdecimal() and offset.isdecimal()):
        raise QueryRefused(f"cursor is {cursor!r}; use the one of an answer")
    return int(queue), int(offset)


def describe(store: Store, redrives: Redrives, letter: Letter) -> Document:
    """Return what is shown of a dead letter."""
    message = letter.message
    found: Document = {"queue": letter.queue_id, "offset": letter.offset, "readable": message is not None}
    if message is None:
        return found
    return {
        **found,
        "id": message.id,
        "uniqueKey": message.unique_key,
        "key": letter.key,
        "tags": message.properties.get("TAGS", ""),
        "topic": letter.topic,
        "originQueue": letter.queue,
        "reason": letter.reason,
        "attempts": letter.attempts,
        "diedMs": message.store_ms,
        "bornMs": message.born_ms,
        "bodyBytes": len(message.stored_body),
        "cut": "DLQ_CUT" in message.properties,
        "redriven": earlier(store, redrives, letter),
    }


def earlier(store: Store, redrives: Redrives, letter: Letter) -> Document | None:
    """Return when and as what a dead letter was redriven last; None when it was not."""
    made = redrives.earlier(letter)
    if made is None:
        return None
    try:
        message: Message | None = at_physical(store, made.physical)
    except StoreError:
        message = None
    return {
        "atMs": made.stored_ms or None,
        "topic": made.topic or None,
        "queue": None if message is None else message.queue_id,
        "offset": None if message is None else message.offset,
        "id": None if message is None else message.id,
    }


def overview(store: Store) -> Document:
    """Return the groups that have dead letters, with counts and the moments of the first and the last."""
    return {"groups": [_group(store, group) for group in groups_with_letters(store)]}


def _group(store: Store, group: str) -> Document:
    topic = letter_topic(store, group)
    assert topic is not None
    places = [(queue, offset) for queue in topic.queues if (offset := queue.max_offset) > queue.min_offset]
    first = [moment for queue, _ in places if (moment := _died(store, topic, queue.queue_id, queue.min_offset))]
    last = [moment for queue, end in places if (moment := _died(store, topic, queue.queue_id, end - 1))]
    return {
        "group": group,
        "deadLetters": sum(queue.max_offset - queue.min_offset for queue in topic.queues),
        "everTotal": sum(queue.max_offset for queue in topic.queues),
        "firstMs": min(first, default=None),
        "lastMs": max(last, default=None),
    }


def _died(store: Store, topic: Topic, queue_id: int, offset: int) -> int | None:
    for letter in letters(store, topic, queue_id=queue_id, offset=offset):
        return None if letter.message is None else letter.message.store_ms
    return None


class Figures:
    """How many dead letters a group has, by topic and reason, and how many of them were redriven."""

    def __init__(self, store: Store, redrives: Redrives, group: str) -> None:
        topic = letter_topic(store, group)
        if topic is None:
            raise NotFound(f"group {group!r} never had a dead letter; `pyddmq dlq list` names the groups that had")
        self._store, self._redrives, self._group, self._topic = store, redrives, group, topic
        self._counts: Counter[tuple[str, str]] = Counter()
        self._redriven: Counter[tuple[str, str]] = Counter()
        self._unreadable = 0

    def steps(self) -> Iterator[None]:
        """Count, yielding after each bounded piece of work."""
        for place, letter in enumerate(letters(self._store, self._topic), 1):
            if letter.message is None:
                self._unreadable += 1
            else:
                kind = (letter.topic, letter.reason)
                if kind not in self._counts and len(self._counts) >= KINDS_MAX:
                    kind = ("", "others")
                self._counts[kind] += 1
                self._redriven[kind] += self._redrives.earlier(letter) is not None
            if not place % STEP_LETTERS:
                yield

    def document(self) -> Document:
        """Return the figures, the most frequent kind first."""
        return {
            **_group(self._store, self._group),
            "unreadable": self._unreadable,
            "redriven": self._redriven.total(),
            "kinds": [
                {"topic": topic, "reason": reason, "count": count, "redriven": self._redriven[topic, reason]}
                for (topic, reason), count in self._counts.most_common()
            ],
        }


class Redrive:
    """One page of a redrive: what is wanted is appended, or only looked at when it is a dry run."""

    def __init__(
        self, store: Store, redrives: Redrives, group: str, page: LetterPage, *, to: str | None, again: bool, dry: bool
    ) -> None:
        self._store = store
        self._redrives = redrives
        self._group = group
        self._page = page
        self._to = to
        self._again = again
        self._dry = dry
        self._results: list[Document] = []
        self._stopped: str | None = None

    def steps(self) -> Iterator[None]:
        """Redrive, yielding after each bounded piece of work; what was appended waits for a flush."""
        for letter in self._page.found():
            if letter is None:
                yield
                continue
            try:
                self._results.append(self._one(letter))
            except StoreError as error:
                self._stopped = str(error)
                self._page.stop_before(letter)
                return

    def _one(self, letter: Letter) -> Document:
        """Redrive one dead letter. Raises StoreError when the store takes nothing now."""
        described = describe(self._store, self._redrives, letter)
        if described.get("redriven") is not None and not self._again:
            return {**described, "outcome": "already"}
        try:
            released = self._redrives.plan(letter, to=self._to)
            target: Document = {"topic": released.put.topic.name, "queue": released.put.queue_id}
            if self._dry:
                return {**described, "outcome": "would_redrive", "target": target}
            position = self._redrives.append(letter, released)
        except RedriveRefused as refusal:
            if not self._dry:
                self._redrives.count_refused(self._group, refusal.kind)
            return {**described, "outcome": "refused", "kind": refusal.kind, "why": str(refusal)}
        made = self._store.options.store_host + position.physical.to_bytes(8, "big")
        target |= {"offset": position.offset, "id": made.hex().upper()}
        return {**described, "outcome": "redriven", "target": target}

    @property
    def is_last(self) -> bool:
        """Whether there is nothing left, or the store takes nothing now."""
        return self._page.cursor is None or self._stopped is not None

    def document(self) -> Document:
        """Return what became of each dead letter; to be called when what was appended is durable."""
        outcomes = Counter(str(each["outcome"]) for each in self._results)
        return {
            "group": self._group,
            "dryRun": self._dry,
            "lookedAt": self._page.looked_at,
            "redriven": outcomes["redriven"],
            "wouldRedrive": outcomes["would_redrive"],
            "already": outcomes["already"],
            "refused": outcomes["refused"],
            "stopped": self._stopped,
            "cursor": self._page.cursor,
            "results": self._results,
        }
