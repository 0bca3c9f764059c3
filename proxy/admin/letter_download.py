"""All dead letters of a group that a filter matches, one JSON object per line, read while they are sent.

However many there are, a download has one page of them and one body in memory: the next part is made when the client
has taken the one before. It ends with the last dead letter that exists when it begins.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping

import msgspec
from aiohttp import web
from msgspec.structs import asdict

from broker.errors import StoreError
from broker.query import NotFound, QueryRefused, at_offset
from broker.queues.topics import DEAD_LETTER_PREFIX
from broker.retry.letters import letter_topic, place_of
from broker.views import View
from proxy.access.rules import Permission
from proxy.admin.entry.rights import Need
from proxy.node.kafka_letters import is_mark
from proxy.operate.live_node import LiveNode
from proxy.operate.lookups import dead_letters
from proxy.operate.lookups.messages import WHOLE_BYTES, describe
from proxy.operate.lookups.messages_in_kafka import kafka_errors
from proxy.operate.lookups.parameters import check_names
from proxy.operate.views.dead_letters import DeadLetterLine, DeadLettersAnswer, DeadLetterView
from proxy.operate.views.messages import MessageView
from upstream.kafka.broker import DEAD_LETTER_SUFFIX
from upstream.kafka.link import TopicScan

PAGE_LETTERS = 200
PART_BYTES = 64 * 1024
"""Lines that are sent together, unless one is longer."""
_OF_PAGES = ("figures", "cursor", "limit")
_PARAMETERS = (*(each for each in dead_letters.PARAMETERS if each not in _OF_PAGES), "bodies")


class LetterDownload:
    """One download.

    Args:
        node: The node.
        given: Parameters of the request, as those of `GET /api/dead-letters`, and `bodies`.
        searching: Held while a page is read.
    """

    def __init__(self, node: LiveNode, given: Mapping[str, str], searching: asyncio.Lock) -> None:
        self._node = node
        self._searching = searching
        self._given = given
        self._group = given.get("group", "")
        self._cluster = node.in_kafka.cluster_of_letters(self._group)
        self._bodies = given.get("bodies") == "true"
        self._topic = DEAD_LETTER_PREFIX + self._group if self._cluster is None else self._group + DEAD_LETTER_SUFFIX
        self._ends: Mapping[int, int] = {}
        """By queue, where the dead letters end that exist at the beginning."""
        self._messages = _KafkaMessages(node, self._topic)

    @property
    def need(self) -> Need | None:
        """The right that it needs beside that to view the group."""
        return Need(Permission.READ_BODIES, lambda _: (self._topic,), self._topic) if self._bodies else None

    async def begin(self) -> DeadLettersAnswer:
        """Return the first page. Raises QueryRefused, NotFound, StoreError."""
        check_names(self._given, _PARAMETERS)
        if not self._group:
            raise QueryRefused("pass a group")
        opened = self._node.dead_letters()
        if self._cluster is not None:
            with kafka_errors(self._cluster):
                found = await self._node.scan(self._cluster, TopicScan(self._topic, is_mark, bytes_max=0))
            self._ends = {queue: end for queue, (_, end) in found.bounds.items()}
        elif opened is None:
            raise StoreError("the store is opening; try again when /readyz reports ready")
        elif (topic := letter_topic(opened[0], self._group)) is not None:
            self._ends = {queue.queue_id: queue.max_offset for queue in topic.queues}
        return await self.page_from((0, 0))

    async def send(self, request: web.Request, page: DeadLettersAnswer) -> web.StreamResponse:
        """Send all lines, from the first page on; a failure aborts the connection, so that the file has no end."""
        response = web.StreamResponse()
        response.content_type, response.charset = "application/x-ndjson", "utf-8"
        response.headers["Content-Disposition"] = 'attachment; filename="dead-letters.ndjson"'
        await response.prepare(request)
        try:
            async for part in self.parts(page):
                await response.write(part)
                # A client that takes all at once leaves no turn to others.
                await asyncio.sleep(0)
        except ConnectionError:
            pass  # The client went away.
        except (NotFound, QueryRefused, StoreError, OSError) as error:
            self._node.limited_log.fault("admin_request_failed", error, kind=request.path, path=request.path)
            if request.transport is not None:
                request.transport.abort()
        return response

    async def parts(self, page: DeadLettersAnswer) -> AsyncIterator[bytes]:
        """Yield the lines, joined to parts, from the first page on."""
        part = bytearray()
        while True:
            for letter in page.dead_letters:
                if letter.offset < self._ends.get(letter.queue, 0):
                    part += msgspec.json.encode(await self._line(letter)) + b"\n"
                if len(part) >= PART_BYTES:
                    yield bytes(part)
                    part.clear()
            place = self._next(page.cursor)
            if place is None:
                break
            page = await self.page_from(place)
        yield bytes(part)

    def _next(self, cursor: str | None) -> tuple[int, int] | None:
        if cursor is None:
            return None
        queue, offset = place_of(cursor)
        if offset < self._ends.get(queue, 0):
            return queue, offset
        return min(((later, 0) for later in self._ends if later > queue), default=None)

    async def page_from(self, place: tuple[int, int]) -> DeadLettersAnswer:
        """Read the page that begins at a queue and an offset."""
        asked = {name: text for name, text in self._given.items() if name != "bodies"}
        asked = {**asked, "limit": str(PAGE_LETTERS), "cursor": "{}:{}".format(*place)}
        opened = self._node.dead_letters()
        found: View | None
        async with self._searching:
            if self._cluster is not None:
                found = await self._node.letters_in_kafka(asked)
            elif opened is None:
                raise StoreError("the store is closed")
            else:
                found = await dead_letters.search(*opened, asked, now_ms=self._node.clock.wall_ms())
        assert isinstance(found, DeadLettersAnswer), "a group was requested, without figures"
        return found

    async def _line(self, letter: DeadLetterView) -> DeadLetterView:
        if not self._bodies:
            return letter
        if self._cluster is not None:
            message = await self._messages.at(letter.queue, letter.offset)
        else:
            message = self._stored(letter.queue, letter.offset)
        return letter if message is None else DeadLetterLine(**asdict(letter), message=message)

    def _stored(self, queue: int, offset: int) -> MessageView | None:
        store = self._node.searchable()
        try:
            found = None if store is None else at_offset(store, self._topic, queue, offset)
        except (NotFound, StoreError):
            # Retention has deleted it since the page was read, or its record is damaged.
            return None
        mask = self._node.masks.of(self._topic)
        return None if found is None else describe(found, WHOLE_BYTES, self._node.tracing, mask)


class _KafkaMessages:
    """Messages of a topic in Kafka, whose places are requested in ascending order."""

    def __init__(self, node: LiveNode, topic: str) -> None:
        self._node = node
        self._topic = topic
        self._found: deque[MessageView] = deque()
        self._next: str | None = ""

    async def at(self, queue: int, offset: int) -> MessageView | None:
        """Return the message at a place; None: it was deleted."""
        while True:
            while self._found and (self._found[0].queue, self._found[0].offset) < (queue, offset):
                self._found.popleft()
            if not self._found and self._next is not None:
                cursor = f"{queue}:{offset}" if not self._next or place_of(self._next) < (queue, offset) else self._next
                given = {"topic": self._topic, "cursor": cursor, "limit": str(PAGE_LETTERS), "body": "whole"}
                answer = await self._node.messages_in_kafka(given)
                assert answer is not None, "the topic has a cluster"
                self._found.extend(answer.messages)
                self._next = None if answer.cursor is None else str(answer.cursor)
                continue
            found = self._found[0] if self._found else None
            return found if found is not None and (found.queue, found.offset) == (queue, offset) else None
