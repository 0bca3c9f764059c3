"""Releasing many records at once that waited in the form in which this broker writes them: nearly all of them.

`broker.scheduled.release` knows every form, and what to say of a message that cannot be delivered. Here whatever is not
plain is left to it: another layout, packed bodies, properties in another order, a topic that takes nothing. For the
rest one look at header and properties does what takes a dozen there; it has an accelerator.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.format.record import HEADER_BYTES, MAGIC_V1_BYTES, SYS_UNUSUAL, Located, locate, sys_flag
from broker.log.put import Put
from broker.queues.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, Topic
from broker.runtime.accelerators import accelerated
from broker.store import Store

_FIELDS = struct.Struct(">16xi16xiq8s16xi").unpack_from
"""Of a record with IPv4 hosts: flag, sysFlag, born timestamp, born host, reconsume times."""
_END = 0x02
_EMPTY = b"\x02\x02"
_KEY = b"UNIQ_KEY\x01"
_STORED = rb"(?:UNIQ_KEY\x01([^\x01\x02]+)\x02)?(?:__PYDDMQ_BATCH\x01\d{5}/\d{5}\x02)?__CRC32#\x01\d{10}\x02\Z"
"""What follows the properties that a message was appended with: see `broker.format.record`."""
_OTHER: Located = (memoryview(b""), 0, 0, 0, -1)
# NamedTuple's own constructor is a Python function; this one is not, and there is one call per message.
_new = tuple.__new__

Origin = tuple[int, bytes]
"""When and where a message was made: ms since the epoch, host (address and i32 port)."""
Find = Callable[[bytes], Topic | None]


class Plain(NamedTuple):
    """Messages that waited, as they go to their topics.

    Attributes:
        puts: What to append for those that are plain, in order.
        origins: Likewise when and where they were made; the hosts have 8 bytes.
        others: Which are not plain: their places among those that were asked for, in order.
    """

    puts: list[Put]
    origins: list[Origin]
    others: Sequence[int]


class Facts:
    """What a room adds to the properties of what waits in it, as it writes it.

    Args:
        fields: Names with their 0x01, and how many digits the value has at most; 0: any text. The first is a number,
            and the others include the real topic and queue.
    """

    def __init__(self, *fields: tuple[bytes, int]) -> None:
        self.fields = fields
        names = [name for name, _ in fields]
        self.topic_at, self.queue_at = names.index(b"REAL_TOPIC\x01"), names.index(b"REAL_QID\x01")
        values = [rb"(\d{1,%d})" % digits if digits else rb"([^\x01\x02]+)" for _, digits in fields]
        pairs = [re.escape(name) + value + b"\x02" for name, value in zip(names, values, strict=True)]
        self.search = re.compile(b"".join(pairs) + _STORED).search
        """Finds the fields at the end of a stored property block, and behind them what the store adds."""


def _release(  # noqa: PLR0917 - what compiled functions take by name costs more
    located: list[Located],
    places: list[tuple[int, int]],
    dues: list[int] | None,
    room: bytes,
    names: tuple[bytes, ...],
    facts: Facts,
    find: Find,
    puts: list[Put],
    origins: list[Origin],
    others: list[int],
) -> None:
    """Release plain messages.

    Args:
        located: Where the parts of each record stand.
        places: Commit-log offset and size of each.
        dues: What the first field of each has to say; None: anything.
        room: The topic in which they waited, as it is in a record.
        names: Bytes of which the properties that go out hold none.
        facts: What the room added.
        find: Returns the topic of a name that takes messages.
        puts: Gets what to append for each that is plain.
        origins: Likewise when and where it was made.
        others: Gets the places of those that are not.
    """
    topics: dict[bytes, Topic | None] = {}
    for place, (view, body_at, body_end, block_at, end) in enumerate(located):
        block = view[body_end:end].tobytes()
        begin = block_at - body_end
        match = facts.search(block, begin) if block.startswith(room) else None
        made = None
        if match is not None and (dues is None or int(match[1]) == dues[place]):
            head = block[begin : match.start()]
            if not any(each in head for each in names):
                made = _put(head, match, facts, topics, find)
        if made is None:
            others.append(place)
            continue
        topic, queue_id, properties, tags, key = made
        flag, sys_flag, born_ms, born_host, reconsumed = _FIELDS(view, body_at - HEADER_BYTES)
        prepared = places[place][0] or -1
        body = view[body_at:body_end]
        fields = (topic, queue_id, body, properties, tags, key, prepared, reconsumed, sys_flag, flag)
        puts.append(_new(Put, fields))
        origins.append((born_ms, born_host))


def _put(
    head: bytes, match: re.Match[bytes], facts: Facts, topics: dict[bytes, Topic | None], find: Find
) -> tuple[Topic, int, bytes, bytes, bytes] | None:
    """Topic, queue id, properties, tags and unique key of a message, None when it is not plain."""
    name, queue_id = match[facts.topic_at + 1], int(match[facts.queue_at + 1])
    if name not in topics:
        topics[name] = find(name)
    topic = topics[name]
    if topic is None or queue_id >= len(topic.queues) or (head and (head[-1] != _END or head[0] == _END)):
        return None
    key: bytes | None = match[len(facts.fields) + 1]
    if key is None:
        return topic, queue_id, head, _value(head, b"TAGS\x01"), _value(head, _KEY)
    if _KEY in head:
        return None
    return topic, queue_id, b"%bUNIQ_KEY\x01%b\x02" % (head, key), _value(head, b"TAGS\x01"), key


def _value(block: bytes, name: bytes) -> bytes:
    """Value of a property in a block that ends in 0x02, the last of equal ones; `name` with its 0x01."""
    at = block.rfind(b"\x02" + name) + 1
    if not at and not block.startswith(name):
        return b""
    return block[at + len(name) : block.index(_END, at + len(name))]


release = accelerated("broker.scheduled.release_accelerator", "release", _release)


class PlainRelease:
    """Releases what waits in one topic of the broker's own.

    Args:
        store: Where it waits, and where the topics are.
        room: Name of the topic, UTF-8.
        facts: What it adds to the properties.
        names: Bytes of which each property of the wait holds some: where one is left, the message is not plain.
    """

    def __init__(self, store: Store, *, room: bytes, facts: Facts, names: tuple[bytes, ...]) -> None:
        self._locate = store.locate
        self._topics = store.topics
        self._room = len(room).to_bytes(1, "big") + room
        self._facts = facts
        self._names = (*names, _EMPTY)

    def release(self, places: list[tuple[int, int]], dues: list[int] | None = None) -> Plain:
        """Make messages to deliver from records; the bodies are not copied.

        Args:
            places: Commit-log offset and size of each.
            dues: What the first field of each has to say, or it is not plain; None: anything.
        """
        try:
            located = self._locate(places, _locate_plain)
        except (DamagedRecord, RecordGone):
            return Plain([], [], range(len(places)))
        puts: list[Put] = []
        origins: list[Origin] = []
        others: list[int] = []
        release(located, places, dues, self._room, self._names, self._facts, self._topic, puts, origins, others)
        return Plain(puts, origins, others)

    def _topic(self, name: bytes) -> Topic | None:
        """Return the topic that messages are delivered to, None when it is not there or takes none."""
        topic = self._topics.get(name.decode("utf-8", "replace"))
        if topic is not None and topic.system and not topic.name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
            return None
        return topic


def _locate_plain(record: memoryview) -> Located:
    """Find body and block of a record of this broker's own layout; any other is left to `broker.scheduled.release`."""
    return locate(record) if record[4:8] == MAGIC_V1_BYTES and not sys_flag(record) & SYS_UNUSUAL else _OTHER
