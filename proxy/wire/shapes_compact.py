"""The layouts that producers' messages come in, learned from the first of each, so that the next are read at one go.

The messages of one producer differ in their values and hardly in anything else: the same fields, the same lengths of
key and tags, the same property names. A *shape* is such a layout. It alternates literals (bytes that are the same in
every message: field headers, lengths, the topic, property names, the version) and values (key, hashId, tags,
partitionId, property values), and is compiled to one `struct.Struct` of as many byte strings, which takes all of them
out of a frame in one call. When the literals found are those expected, every length and type in the message is what
it was in the one that the shape was learned from, so the values are what lies between. Otherwise the message has
another shape, or none, and is scanned field by field.

A message has two shapes, since the length of its body varies freely:

    head   18 len topic 18 len | key | 26 | hashId | 18 len | tags | 15 | partitionId | 28
    body   varint bytes
    tail   18 len version 1b count 88 len name len | value | len name len | value | 00

A head is found by its first literal, topic and length of the key; it remembers the tails that came after it. All
tables are bounded. Beyond the first of its kind (or, with tails, the first few) only every eighth miss is learned from,
so that traffic without recurring shapes pays little for looking.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, NamedTuple

from proxy.wire.compact import BINARY, I32, I64, STOP, binary, i64, varint32, varint64

_Unpack = Callable[[bytes, int], tuple[Any, ...]]

_FIRSTS_MAX = 64
_HEADS_MAX = 4
_TAILS_MAX = 8
_HEAD_BYTES_MAX = 1024
_TAIL_BYTES_MAX = 1024
_TAIL_PROPERTIES_MAX = 64
_NUMBERS_MAX = 4096
_MISSES_PER_LESSON = 8

_VALUES = {2: BINARY, 4: I64, 5: BINARY, 6: I32}
"""The fields between topic and body that are values of a head: key, hashId, tags, partitionId."""


class Tail(NamedTuple):
    """What follows a body, its stop byte included.

    Attributes:
        unpack: Takes literals and values, in turn, from (frame, position).
        size: Bytes in all.
        literals: Every second part, from the first.
        names: The property names, one for each value.
        version: Field 8.
    """

    unpack: _Unpack
    size: int
    literals: tuple[bytes, ...]
    names: tuple[bytes, ...]
    version: bytes | None


def _no_parts(_frame: bytes, _pos: int) -> tuple[()]:
    return ()


NO_TAIL = Tail(_no_parts, 0, (b"",), (), None)
"""Stands where no tail is known; never found."""


class Head(NamedTuple):
    """What precedes the length of a body. A field that is absent has a literal and a value of no bytes.

    Attributes:
        unpack: Takes `first`, key, `second`, hashId, `third`, tags, `fourth`, partitionId, `fifth`.
        size: Bytes in all.
        topic: Field 1.
        tails: The shapes of what followed bodies under this head, the last used first.
    """

    unpack: _Unpack
    size: int
    topic: bytes
    first: bytes
    second: bytes
    third: bytes
    fourth: bytes
    fifth: bytes
    tails: list[Tail]


class Numbers(dict[bytes, int]):
    """The signed numbers of some zigzag varints; the key is the bytes in a frame, b"" for an absent field.

    `[]` raises IndexError or ArgumentsError for bytes that are not exactly one number of at most `bits` bits.
    """

    def __init__(self, absent: int, bits: int) -> None:
        super().__init__({b"": absent})
        self._absent = absent
        self._bits = bits

    def __missing__(self, raw: bytes) -> int:
        value, end = i64(raw, 0)
        if end != len(raw) or value.bit_length() >= self._bits:
            raise IndexError("another number of bytes than its neighbours in the frame suggest")
        if len(self) >= _NUMBERS_MAX:
            self.clear()
            self[b""] = self._absent
        self[raw] = value
        return value


class Shapes:
    """The shapes that were seen lately."""

    def __init__(self) -> None:
        self._heads: dict[bytes, list[Head]] = {}
        self._misses = 0

    def heads(self, frame: bytes, pos: int) -> list[Head]:
        """Return the heads that the message at `pos` may have, the likeliest first."""
        first = _first_literal(frame, pos)
        found = self._heads.get(first)
        if found is None:
            return []
        if len(self._heads) == _FIRSTS_MAX:
            # The dict's order is that of use.
            self._heads[first] = self._heads.pop(first)
        return found

    def learn_head(self, frame: bytes, pos: int) -> Head | None:
        """Take up the head of a message that was scanned and found right; None when it has no usual layout."""
        first = _first_literal(frame, pos)
        if (first in self._heads or len(self._heads) >= _FIRSTS_MAX) and not self._lesson():
            return None
        head = _head_at(frame, pos)
        if head is None:
            return None
        heads = self._heads.setdefault(first, [])
        for known in heads:
            if known[1:-1] == head[1:-1]:
                # Its tail was the unusual part.
                return known
        heads.insert(0, head)
        del heads[_HEADS_MAX:]
        if len(self._heads) > _FIRSTS_MAX:
            del self._heads[next(iter(self._heads))]
        return head

    def learn_tail(self, tails: list[Tail], frame: bytes, pos: int) -> None:
        """Take up what follows a body, found right up to its stop byte, if it has a usual layout."""
        if len(tails) >= _TAILS_MAX and not self._lesson():
            return
        tail = _tail_at(frame, pos)
        if tail is not None:
            tails.insert(0, tail)
            del tails[_TAILS_MAX:]

    def _lesson(self) -> bool:
        self._misses += 1
        return self._misses % _MISSES_PER_LESSON == 0


def find_tail(tails: list[Tail], frame: bytes, pos: int) -> Tail | None:
    """Return the tail that stands at `pos`, moved to the front; None when none of them does."""
    for place, tail in enumerate(tails):
        if pos + tail.size <= len(frame) and tail.unpack(frame, pos)[::2] == tail.literals:
            tails.insert(0, tails.pop(place))
            return tail
    return None


def _first_literal(frame: bytes, pos: int) -> bytes:
    """Topic and the two bytes after it: header and length of the key where there is one, short enough."""
    # A message of one byte may end its frame.
    return frame[pos : pos + 4 + sum(frame[pos + 1 : pos + 2])]


def _head_at(frame: bytes, pos: int) -> Head | None:
    """Read the head of a message that is right; None when it has other fields than usual, or long ones."""
    at = mark = pos
    field = 0
    topic = b""
    literals: dict[int, bytes] = {}
    sizes: dict[int, int] = {}
    while True:
        header = frame[at]
        field += header >> 4
        at += 1
        kind = header & 15
        if header < 16 or at - pos > _HEAD_BYTES_MAX:
            return None
        if field == 7 and kind == BINARY:
            break
        if field == 1 and kind == BINARY:
            topic, at = binary(frame, at)
            continue
        if _VALUES.get(field) != kind:
            return None
        if kind == BINARY:
            sizes[field], at = varint32(frame, at)
            if not sizes[field]:
                # A value of no bytes stands for an absent field.
                return None
        else:
            sizes[field] = varint64(frame, at)[1] - at
        literals[field] = frame[mark:at]
        at += sizes[field]
        mark = at
    parts = [literals.get(name, b"") for name in _VALUES] + [frame[mark:at]]
    pairs = [f"{len(part)}s{sizes.get(name, 0)}s" for part, name in zip(parts, _VALUES, strict=False)]
    unpack = struct.Struct("".join(pairs) + f"{len(parts[-1])}s").unpack_from
    first, second, third, fourth, fifth = parts
    return Head(unpack, at - pos, topic, first, second, third, fourth, fifth, [])


def _tail_at(frame: bytes, pos: int) -> Tail | None:
    """Read a tail that is right up to its stop byte; None when it is long or has other fields than usual."""
    at = mark = pos
    version = None
    if frame[at] == 0x18:
        version, at = binary(frame, at + 1)
    names: list[bytes] = []
    parts: list[str] = []
    literals: list[bytes] = []
    if frame[at] == (0x2B if version is None else 0x1B):
        count = frame[at + 1]
        if not 0 < count <= _TAIL_PROPERTIES_MAX or frame[at + 2] != 0x88:
            return None
        at += 3
        for _ in range(count):
            name, at = binary(frame, at)
            size, at = varint32(frame, at)
            names.append(name)
            literals.append(frame[mark:at])
            parts.append(f"{at - mark}s{size}s")
            at += size
            mark = at
    if frame[at] != STOP or at - pos > _TAIL_BYTES_MAX:
        return None
    literals.append(frame[mark : at + 1])
    unpack = struct.Struct("".join(parts) + f"{at + 1 - mark}s").unpack_from
    return Tail(unpack, at + 1 - pos, tuple(literals), tuple(names), version)
