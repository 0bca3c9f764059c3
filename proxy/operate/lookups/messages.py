"""Looking for stored messages: from a request's parameters to an answer, in steps of bounded work.

The admin port and `pyddmq messages --data` do the same with it. docs/admin.md describes parameters and answers.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Generator, Mapping
from typing import Literal

from msgspec import UNSET, UnsetType

from broker.errors import BodyUnusable
from broker.format.message import LogMessage
from broker.format.numbers import whole_number
from broker.query import (
    LIMIT_DEFAULT,
    KeyQuery,
    Listing,
    NotFound,
    Query,
    QueryRefused,
    Searchable,
    at_offset,
    at_physical,
    by_id,
    by_key,
    by_unique_key,
)
from broker.scheduled.recurring.occurrence import Occurrence, parse_id
from broker.scheduled.timer.handle import parse_handle
from broker.scheduled.timer.names import TIMER_TOPIC
from proxy.operate.lookups.masks import MessageMasks, TopicMask
from proxy.operate.lookups.parameters import check_names, time_span
from proxy.operate.views.messages import MessagesAnswer, MessageView
from upstream.figures.tracing import Tracing, trace_id_of

LIMIT_MAX = 1000
BODY_CUT_BYTES = 1024
"""Bytes of a body that are shown unless all of it is asked for."""
PAGE_BYTES = 1 << 20
"""Bytes of records after which a page of a list ends; writing them as JSON takes some milliseconds of the loop."""
TEXT_BYTES = 16 << 20
"""Bytes of records that one request looks through for a text."""
WHOLE_BYTES = 16 << 20
"""Bytes of whole bodies that one answer holds; further ones are cut, and one by one they are whole."""

TAIL = "end"
"""A cursor: nothing is found, and the answer says where what comes next begins."""
KEY_NAME = "KEYS"
NO_MASKS = MessageMasks({})

DESCRIBE_BYTES = 1 << 19
"""Bytes of bodies that one step unpacks, masks and cuts."""
_STEP_MESSAGES = 32

PARAMETERS = (
    "topic",
    "key",
    "uniqKey",
    "id",
    "physical",
    "queue",
    "offset",
    "from",
    "to",
    "cursor",
    "limit",
    "body",
    "text",
)


class MessageSearch:
    """One request for messages.

    Args:
        store: Where.
        parameters: Of `PARAMETERS`; as text.
        now_ms: What `ago` means, ms since the epoch.
        tracing: The node's; None where nothing is traced.
        masks: What is not shown.

    Raises:
        QueryRefused: The parameters make no sense.
    """

    def __init__(
        self,
        store: Searchable,
        parameters: Mapping[str, str],
        *,
        now_ms: int,
        tracing: Tracing | None = None,
        masks: MessageMasks = NO_MASKS,
    ) -> None:
        self._store = store
        self._tracing = tracing
        self._masks = masks
        self._now_ms = now_ms
        self._given = parameters
        self._query: Query | None = None
        self._messages: list[LogMessage] = []
        self._described: list[MessageView] = []
        # Before the search, so that a search that begins there misses nothing.
        self._log_end = store.index.log.visible_end
        check_names(parameters, PARAMETERS)
        self._body = parameters.get("body", "cut")
        if self._body not in ("none", "cut", "whole"):
            raise QueryRefused(f"body must be none, cut or whole, got {self._body!r}")

    def steps(self) -> Generator[None, None, MessagesAnswer]:
        """Search, yielding after each bounded piece of work; returns what was found.

        Raises:
            QueryRefused: What was asked for makes no sense.
            NotFound: It is not there.
            OSError: A file cannot be read.
        """
        given = self._given
        if "id" in given:
            yield from self._by_id(given["id"])
        elif "physical" in given:
            self._messages = [at_physical(self._store, self._number("physical", 0))]
        elif "uniqKey" in given:
            yield from self._by_unique_key(given["uniqKey"])
        elif "key" in given:
            begin_ms, end_ms = time_span(given, self._now_ms)
            if KEY_NAME in self._masks.of(self._topic()).names:
                raise QueryRefused(f"keys of topic {self._topic()} are masked; search by id, offset or time")
            query = by_key(
                self._store, self._topic(), given["key"], begin_ms=begin_ms, end_ms=end_ms, limit=self._limit()
            )
            yield from self._run(query)
        elif "text" in given:
            yield from self._by_text(given["text"].encode("utf-8", "surrogatepass"))
        elif "offset" in given and "limit" not in given and "cursor" not in given:
            self._messages = [at_offset(self._store, self._topic(), self._queue(), self._number("offset", 0))]
        else:
            yield from self._run(self._listing())
        yield from self._describe()
        return self._answer()

    def _run(self, query: Query) -> Generator[None, None, None]:
        self._query = query
        yield from query.steps()
        self._messages = query.found

    def _by_text(self, text: bytes) -> Generator[None, None, None]:
        """Look through a bounded part of a topic; the cursor continues there."""
        cursor: int | None = self._cursor()
        found: list[LogMessage] = []
        looked_through = step_bytes = 0
        while cursor is not None and looked_through < TEXT_BYTES:
            listing = self._listing(cursor=cursor, limit=LIMIT_MAX)
            yield from self._run(listing)
            cursor = listing.cursor
            for place, message in enumerate(listing.found, 1):
                looked_through += message.size
                step_bytes += message.size
                if contains(message, text, self._masks.of(message.topic)):
                    if len(found) == self._limit():
                        cursor, looked_through = message.physical, TEXT_BYTES
                        break
                    found.append(message)
                if not place % _STEP_MESSAGES or step_bytes > DESCRIBE_BYTES:
                    step_bytes = 0
                    yield
            listing.cursor = cursor
        self._messages = found

    def _listing(self, *, cursor: int | None = None, limit: int | None = None) -> Listing:
        begin_ms, end_ms = time_span(self._given, self._now_ms)
        return Listing(
            self._store,
            self._topic(),
            queue=self._queue() if "queue" in self._given or "offset" in self._given else None,
            offset=self._number("offset", 0),
            begin_ms=begin_ms,
            end_ms=end_ms,
            cursor=self._cursor() if cursor is None else cursor,
            limit=self._limit() if limit is None else limit,
            bytes_max=PAGE_BYTES,
        )

    def _by_id(self, text: str) -> Generator[None, None, None]:
        """An id is the store's (host and commit-log offset) or the producer's: UNIQ_KEY, a timer's handle, DDMQ's."""
        occurrence, handle = parse_id(text), parse_handle(text)
        if occurrence is not None:
            yield from self._by_occurrence(occurrence)
            return
        if handle is not None:
            yield from self._by_unique_key(handle.unique_key)
            return
        try:
            self._messages = [by_id(self._store, text)]
        except (NotFound, QueryRefused) as error:
            yield from self._run(by_unique_key(self._store, self._given.get("topic"), text, limit=self._limit()))
            if not self._messages:
                reason = f"neither as offsetMsgId nor as UNIQ_KEY{self._unsure()}"
                raise NotFound(f"no message has the id {text!r}, {reason}") from error

    def _by_occurrence(self, occurrence: Occurrence) -> Generator[None, None, None]:
        """Find what DDMQ's id names: the delivered message, else the record that waits or waited last."""
        waited: list[LogMessage] = []
        if TIMER_TOPIC in self._store.topics:
            yield from self._run(by_key(self._store, TIMER_TOPIC, occurrence.first.id, limit=1))
            waited = self._messages
        topic = self._given.get("topic") or (waited[0].properties.get("REAL_TOPIC", "") if waited else "")
        if topic in self._store.topics:
            yield from self._run(by_key(self._store, topic, occurrence.id, limit=self._limit()))
        self._messages = self._messages or waited
        if not self._messages:
            hint = "" if topic else "; a message that was delivered without waiting is found with its topic (--topic)"
            raise NotFound(f"no message has DDMQ's id {occurrence.id}{hint}{self._unsure()}")

    def _by_unique_key(self, text: str) -> Generator[None, None, None]:
        yield from self._run(by_unique_key(self._store, self._given.get("topic"), text, limit=self._limit()))
        if not self._messages:
            raise NotFound(f"no message has the unique key {text!r}{self._unsure()}")

    def _unsure(self) -> str:
        query = self._query
        if isinstance(query, KeyQuery) and query.unsearched:
            missed = sum(end - start for start, end in query.unsearched)
            return f"; {missed} bytes of the log are not indexed and were not searched"
        return ""

    def _describe(self) -> Generator[None, None, None]:
        left = WHOLE_BYTES
        described_bytes = 0
        for message in self._messages:
            allowed = {"none": 0, "cut": BODY_CUT_BYTES, "whole": max(left, BODY_CUT_BYTES)}[self._body]
            described = describe(message, allowed, self._tracing, self._masks.of(message.topic))
            self._described.append(described)
            left -= described.body_bytes
            described_bytes += described.body_bytes + BODY_CUT_BYTES
            if described_bytes > DESCRIBE_BYTES:
                # Unpacking takes its time.
                described_bytes = 0
                yield

    # Parameters

    def _topic(self) -> str:
        topic = self._given.get("topic")
        if topic is None:
            raise QueryRefused("pass a topic, or an id, uniqKey or physical")
        return topic

    def _queue(self) -> int:
        if "queue" not in self._given:
            raise QueryRefused("an offset belongs to a queue; pass the queue, too")
        return self._number("queue", 0)

    def _limit(self) -> int:
        return min(self._number("limit", LIMIT_DEFAULT), LIMIT_MAX)

    def _cursor(self) -> int:
        return self._log_end if self._given.get("cursor") == TAIL else self._number("cursor", 0)

    def _number(self, name: str, default: int) -> int:
        text = self._given.get(name)
        if text is None:
            return default
        number = whole_number(text)
        if number is None:
            raise QueryRefused(f"{name} must be an integer >= 0, got {text!r}")
        return number

    # The answer

    def _answer(self) -> MessagesAnswer:
        query = self._query
        unsearched = query.unsearched if isinstance(query, KeyQuery) else ()
        cursor = query.cursor if isinstance(query, Listing) else None
        if self._given.get("cursor") == TAIL:
            cursor = self._log_end if cursor is None else cursor
        return MessagesAnswer(
            now_ms=self._now_ms,
            log_end=self._log_end,
            messages=self._described,
            cursor=cursor,
            damaged=0 if query is None else query.damaged,
            unsearched_bytes=sum(end - start for start, end in unsearched),
        )


def contains(message: LogMessage, text: bytes, mask: TopicMask) -> bool:
    """Whether the body, unpacked, or a name or value of the properties contains a text, as far as they are shown."""
    try:
        body = message.body()
    except BodyUnusable:
        body = bytes(message.stored_body)
    return text in mask.body(body) or any(
        text in each.encode("utf-8", "surrogatepass")
        for pair in mask.properties(message.properties).items()
        for each in pair
    )


def describe(message: LogMessage, body_bytes_max: int, tracing: Tracing | None, mask: TopicMask) -> MessageView:
    """Return a message as it is shown; a body of more bytes is cut, and says so."""
    problem: str | UnsetType = UNSET
    try:
        body = message.body()
    except BodyUnusable as error:
        problem, body = str(error), bytes(message.stored_body)
    trace_id = trace_id_of(message.properties, message.unique_key, tracing)
    body, properties = mask.body(body), mask.properties(message.properties)
    text, encoding = text_of(body, body_bytes_max)
    link = None if tracing is None or trace_id is None else tracing.link(trace_id)
    return MessageView(
        topic=message.topic,
        queue=message.queue_id,
        offset=message.offset,
        id=message.id,
        unique_key=message.unique_key,
        key=properties.get("KEYS"),
        tag=properties.get("TAGS"),
        store_ms=message.store_ms,
        store_host=host_text(message.store_host),
        born_ms=message.born_ms,
        born_host=host_text(message.born_host),
        physical=message.physical,
        bytes=message.size,
        sys_flag=message.sys_flag,
        flag=message.flag,
        reconsume_times=message.reconsume_times,
        prepared_offset=message.prepared_offset,
        properties=properties,
        trace_id=trace_id,
        trace_link=UNSET if link is None else link,
        body_problem=problem,
        body_bytes=len(body),
        body=text,
        body_encoding=encoding,
        body_cut=len(body) > body_bytes_max,
        masked=sorted((*mask.names, *mask.paths)) if mask else UNSET,
    )


def text_of(body: bytes, bytes_max: int) -> tuple[str, Literal["utf-8", "base64"]]:
    """Return the beginning of a body, and how it is written."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return base64.b64encode(body[:bytes_max]).decode(), "base64"
    # A character that the cut would split is left out.
    return body[:bytes_max].decode(errors="ignore") if len(body) > bytes_max else text, "utf-8"


def host_text(host: bytes) -> str:
    """Write a record's host, address and i32 port, as `address:port`."""
    address = ipaddress.ip_address(host[:-4])
    port = int.from_bytes(host[-4:], "big")
    return f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
