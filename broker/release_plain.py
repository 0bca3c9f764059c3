"""Releasing many records at once that waited in the form in which this broker writes them: nearly all of them.

`broker.release` knows every form, and what to say of a message that cannot be delivered. Here whatever is not plain is
left to it: another layout, packed bodies, properties in another order, a topic that takes nothing. For the rest one
look at header and properties does what takes a dozen there, at a fifth of the cost.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.properties import find_property
from broker.put import Put
from broker.record import HEADER_BYTES, Located
from broker.store import Store
from broker.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, Topic, is_system

_FIELDS = struct.Struct(">16xi16xiq8s16xi").unpack_from
"""Of a record with IPv4 hosts: flag, sysFlag, born timestamp, born host, reconsume times."""
_END = 0x02
_EMPTY = b"\x02\x02"
_KEY = b"UNIQ_KEY\x01"
_STORED = rb"(?:UNIQ_KEY\x01([^\x01\x02]+)\x02)?(?:__PYDDMQ_BATCH\x01\d{5}/\d{5}\x02)?__CRC32#\x01\d{10}\x02\Z"
"""What stands behind the properties that a message was appended with: see `broker.record`."""
_OTHER: Located = (memoryview(b""), 0, 0, 0, -1)
# NamedTuple's own constructor is a Python function; this one is not, and there is one call per message.
_new = tuple.__new__


class Plain(NamedTuple):
    """A message that waited, as it goes to its topic: as `broker.release.Released`, and what its room noted first.

    Attributes:
        put: What to append.
        born_ms: As it was sent.
        born_host: Likewise; 8 bytes.
        fact: The first group of the room's pattern.
    """

    put: Put
    born_ms: int
    born_host: bytes
    fact: bytes


class PlainRelease:
    """Releases what waits in one topic of the broker's own.

    Args:
        store: Where it waits, and where the topics are.
        room: Name of the topic, UTF-8.
        facts: `pattern` of what the room adds to the properties, as it writes it: a group of its own choice, then
            those of the real topic and queue.
        names: Bytes of which each property of the wait holds some: where one is left, the message is not plain.
    """

    def __init__(self, store: Store, *, room: bytes, facts: re.Pattern[bytes], names: tuple[bytes, ...]) -> None:
        self._store = store
        self._room = len(room).to_bytes(1, "big") + room
        self._search = facts.search
        self._names = (*names, _EMPTY)

    def release(self, places: Sequence[tuple[int, int]]) -> list[Plain | None]:
        """Make messages to deliver from records, None where one is not plain; the bodies are not copied.

        Args:
            places: Commit-log offset and size of each.
        """
        try:
            located = self._store.locate(places, _other)
        except (DamagedRecord, RecordGone):
            return [None] * len(places)
        blocks = [view[body_end:end].tobytes() for view, _, body_end, _, end in located]
        facts = list(map(self._search, blocks))
        heads = [
            block[found[3] - found[2] : match.start()] if match is not None and block.startswith(self._room) else None
            for block, match, found in zip(blocks, facts, located, strict=True)
        ]
        # One search in all of them is cheaper than one in each.
        every = b"\x01".join([head for head in heads if head])
        if any(each in every for each in self._names):
            heads = [None if head and any(each in head for each in self._names) else head for head in heads]
        topics: dict[bytes, Topic | None] = {}
        return [
            None if head is None or match is None else self._plain(found, physical, head, match, topics)
            for head, match, found, (physical, _) in zip(heads, facts, located, places, strict=True)
        ]

    def _plain(
        self, found: Located, physical: int, head: bytes, facts: re.Match[bytes], topics: dict[bytes, Topic | None]
    ) -> Plain | None:
        fact, name, queue, key = facts.groups()
        if name not in topics:
            topics[name] = _topic(name, self._store.topics)
        topic = topics[name]
        queue_id = int(queue)
        if topic is None or queue_id >= len(topic.queues) or (head and (head[-1] != _END or head[0] == _END)):
            return None
        properties = head
        tags = _value(head, b"TAGS\x01")
        if key is None:
            key = _value(head, _KEY)
        elif _KEY in head:
            return None
        else:
            properties += facts.string[facts.start(4) - len(_KEY) : facts.end(4) + 1]
        view, body_at, body_end, _, _ = found
        flag, sys_flag, born_ms, born_host, reconsumed = _FIELDS(view, body_at - HEADER_BYTES)
        body = view[body_at:body_end]
        put = _new(Put, (topic, queue_id, body, properties, tags, key, physical or -1, reconsumed, sys_flag, flag))
        return _new(Plain, (put, born_ms, born_host, fact))


def pattern(facts: bytes) -> re.Pattern[bytes]:
    """Return what finds a room's facts at the end of a stored property block, and behind them what the store adds."""
    return re.compile(facts + _STORED)


def _value(block: bytes, name: bytes) -> bytes:
    """Value of a property in a block that ends in 0x02; `name` with its 0x01."""
    at = block.find(name)
    if at > 0 and block[at - 1] != _END:
        return find_property(block, name[:-1]) or b""
    return block[at + len(name) : block.index(_END, at + len(name))] if at >= 0 else b""


def _other(_: memoryview) -> Located:
    return _OTHER


def _topic(name: bytes, topics: Mapping[str, Topic]) -> Topic | None:
    """Return the topic that messages are delivered to, None when it is not there or takes none."""
    topic = topics.get(name.decode("utf-8", "replace"))
    if topic is not None and is_system(topic.name) and not topic.name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
        return None
    return topic
