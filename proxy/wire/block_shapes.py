"""Property blocks of a known shape, cut by one call.

The messages of a producer mostly look alike: the same names in the same order, and often values of the same lengths
(keys, trace ids, kinds). Where the lengths are the same, names and values stand at the same places in the stored
block, so one compiled `struct.Struct` cuts it, and the bytes that go before each value in a compact reply are
constants.

A shape is learned from a block in this broker's own layout: KEYS, TAGS, the user's properties, UNIQ_KEY, for a member
of an atomic batch its place, the sum. That a later block of the same length has the shape is proven, not assumed: all
names and separators are compared, there are no more separators than those, and everything is ASCII. Whatever is not
proven goes the general way, with the same result; so shapes are a matter of speed alone.

There is one shape per block length, replaced when it keeps failing, so memory is bounded by the length of a block.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from broker.format.record import BATCH_PREFIX, CRC_PREFIX
from proxy.wire.call import encode_varint

_MISSES_MAX = 32
_SHAPES_MAX = 512
_BLOCK_BYTES_MAX = 2_048
_UNIQUE_KEY = b"UNIQ_KEY\x01"


class BlockShape:
    """How blocks of one length are cut.

    Attributes:
        cut: Cuts a block into names (with their separators) and values, in turn; the first piece is a name.
        names: The names that must stand at the even places.
        separators: How many 0x02 the block must have.
        key_head, tags_head: What stands before the key's and the tags' bytes in a compact reply; None: absent.
        user_at: Index among the pieces of the first name of the user's properties.
        user_end: Index behind the name that follows the last of their values.
        heads: What takes the place of each of those names in a compact reply, the last one being the message's end.
        misses: Blocks of this length that had another shape, since the last one that had it.
    """

    __slots__ = ("cut", "heads", "key_head", "misses", "names", "separators", "tags_head", "user_at", "user_end")

    def __init__(
        self, key: bytes | None, tags: bytes | None, pairs: Sequence[tuple[bytes, bytes]], ends: bytes
    ) -> None:
        """Learn from what a block was taken apart to; `ends` is the broker's closing part of it."""
        shown = _shown(key, tags)
        self.user_at = 2 * len(shown)
        self.user_end = self.user_at + 2 * len(pairs) + 1
        shown += pairs
        lengths: list[int] = []
        before = b""
        names: list[bytes] = []
        hidden = [token.partition(b"\x01")[::2] for token in ends[:-1].split(b"\x02")]
        for name, value in [*shown, *hidden]:
            names.append(before + name + b"\x01")
            lengths += (len(names[-1]), len(value))
            before = b"\x02"
        self.names = (*names, before)
        self.cut: Callable[[bytes], tuple[bytes, ...]] = struct.Struct(
            "".join(f"{length}s" for length in (*lengths, 1))
        ).unpack
        self.separators = len(names)
        self.key_head = None if key is None else b"\x18" + encode_varint(len(key))
        self.tags_head = None if tags is None else b"\x18" + encode_varint(len(tags))
        self.heads = [encode_varint(len(name)) + name + encode_varint(len(value)) for name, value in pairs] + [b"\x00"]
        if pairs:
            self.heads[0] = b"\x1b" + encode_varint(len(pairs)) + b"\x88" + self.heads[0]
        self.misses = 0


class BlockShapes:
    """The shapes met so far, by length of the block."""

    def __init__(self) -> None:
        self.by_length: dict[int, BlockShape] = {}

    def learn(self, block: bytes, key: bytes | None, tags: bytes | None, pairs: Sequence[tuple[bytes, bytes]]) -> None:
        """Take note of a block that no shape fitted, and of what it was taken apart to."""
        size = len(block)
        known = self.by_length.get(size)
        if known is not None:
            known.misses += 1
            if known.misses < _MISSES_MAX:
                return
        if size > _BLOCK_BYTES_MAX or not block.isascii():
            return
        head = b"".join(b"%b\x01%b\x02" % pair for pair in (*_shown(key, tags), *pairs))
        ends = block[len(head) :]
        if block.startswith(head) and ends.startswith(_UNIQUE_KEY) and _closes(ends):
            if len(self.by_length) >= _SHAPES_MAX:
                self.by_length.clear()
            self.by_length[size] = BlockShape(key, tags, pairs, ends)


def _shown(key: bytes | None, tags: bytes | None) -> list[tuple[bytes, bytes]]:
    """Key and tags as the pairs that a block of our own begins with."""
    return [(name, value) for name, value in ((b"KEYS", key), (b"TAGS", tags)) if value is not None]


def _closes(ends: bytes) -> bool:
    """Whether the closing part is UNIQ_KEY, perhaps the mark of a batch, and the sum, each with a value."""
    tokens = ends.split(b"\x02")
    marks = tokens[1:-2]
    return (
        len(tokens) >= 3
        and len(tokens[0]) > len(_UNIQUE_KEY)
        and len(marks) <= 1
        and all(mark.startswith(BATCH_PREFIX) for mark in marks)
        and tokens[-2].startswith(CRC_PREFIX)
        and not tokens[-1]
    )
