"""Keys of a message as RocketMQ's index knows them, and their hashes.

Indexed are `UNIQ_KEY` and each space-separated word of `KEYS`, each as `topic#key`, by Java's hash of that text. Of a
name that is there twice the last value counts, as for all readers of the properties: a member of a batch of
RocketMQ's Java client has a UNIQ_KEY of its own, and then that of the batch. The first one is indexed, too: it is the
one that the producer received. The hash costs 5 to 11 us for 40 characters in Python (D7), so the part before the
key is remembered, and keys are hashed many at once (`broker.index.keys`).
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from functools import lru_cache

from broker.format.java import extended_hash, string_hash
from broker.format.properties import find_property

# Java's hash of many texts at once: arithmetic on one large integer instead of a loop over characters.
#
# Each text is right-aligned in a lane of 16 or 32 bytes of the integer. Zeros in front do not change a hash, since
# they count nothing. One round adds neighbours, the left one times a power of 31: bytes become pairs in lanes of 16
# bits, pairs become fours in lanes of 32 bits, and so on, all lanes of all texts in a few operations. A half of a lane
# never overflows: k characters make less than 255 * 31^k, and 31^k takes 5 of the 8 bits per character that its half
# has.
#
# A text of 32 characters costs 0.2 us so, a tenth of what a loop over it costs.

CHARS_MAX = 32
TEXTS_MAX = 512
"""Texts that are hashed in one go; the masks of the rounds are made for so many."""
_SWAP = sys.byteorder == "little"
_WORD_BYTES = 4
assert array("i").itemsize == _WORD_BYTES


def ascii_hashes(texts: Sequence[bytes]) -> list[int]:
    """Return Java's hash of each text, ASCII of up to 32 characters, signed 32-bit."""
    if len(texts) > TEXTS_MAX:
        return [value for at in range(0, len(texts), TEXTS_MAX) for value in ascii_hashes(texts[at : at + TEXTS_MAX])]
    width = CHARS_MAX // 2 if max(map(len, texts), default=0) <= CHARS_MAX // 2 else CHARS_MAX
    total = int.from_bytes(b"".join([text.rjust(width, b"\0") for text in texts]), "big")
    for bits, mask, power in _rounds(width):
        total = (total & mask) + ((total >> bits) & mask) * power
    words = array("i")
    words.frombytes(total.to_bytes(width * len(texts), "big"))
    per_lane = width // _WORD_BYTES
    found = words[per_lane - 1 :: per_lane]
    if _SWAP:
        found.byteswap()
    return found.tolist()


@lru_cache(maxsize=2)
def _rounds(width: int) -> list[tuple[int, int, int]]:
    """Return the shift in bits of each round, the mask of the right halves and the power of 31."""
    rounds = []
    half = 1
    while half < width:
        pair = b"\0" * half + b"\xff" * half
        mask = int.from_bytes(pair * (width * TEXTS_MAX // len(pair)), "big")
        rounds.append((8 * half, mask, 31**half))
        half *= 2
    return rounds


_UNIQUE = b"UNIQ_KEY\x01"
_UNIQUE_LATER = b"\x02" + _UNIQUE
_TAGS_KEY = b"T#"
"""What RocketMQ puts before tags, so that they are no word of KEYS."""
_LONG_CHARS = 256
_CACHE_MAX = 1024
_SIGN = 1 << 31
_POSITIVE = _SIGN - 1
_POWERS = [pow(31, count, 1 << 32) for count in range(CHARS_MAX + 1)]


def unique_key_of(block: bytes) -> bytes:
    """Value of `UNIQ_KEY` in a property block, the last of several; b"" when there is none."""
    return find_property(block, b"UNIQ_KEY") or b""


def unique_keys_of(block: bytes) -> list[bytes]:
    """Unique keys under which a message is indexed: the last that is in its property block, then the first."""
    last = unique_key_of(block)
    at = 0 if block.startswith(_UNIQUE) else block.find(_UNIQUE_LATER) + 1
    first = block[at + len(_UNIQUE) :].partition(b"\x02")[0] if at or block.startswith(_UNIQUE) else b""
    return [key for key in ((last, first) if first != last else (last,)) if key]


def words_value_of(block: bytes) -> bytes:
    """Value of `KEYS` in a property block, the last of several; b"" when there is none."""
    return find_property(block, b"KEYS") or b""


def keys_of(block: bytes) -> list[bytes]:
    """All keys under which a message is indexed, the unique key first. A word may come twice."""
    return [*unique_keys_of(block), *_words(words_value_of(block))]


def must_keys_of(block: bytes) -> list[bytes]:
    """Return those of them that RocketMQ indexes: the unique key that counts, and the words."""
    unique, words = unique_key_of(block), _words(words_value_of(block))
    return [unique, *words] if unique else words


def may_keys_of(block: bytes) -> list[bytes]:
    """Return all keys under which RocketMQ may have indexed a message: since 5.5 its tags are among them."""
    tags = find_property(block, b"TAGS")
    return [*keys_of(block), _TAGS_KEY + tags] if tags else keys_of(block)


def _words(value: bytes) -> list[bytes]:
    if b" " in value:
        return [word for word in value.split(b" ") if word]
    return [value] if value else []


class KeyHasher:
    """Hashes `topic#key` as RocketMQ's indexKeyHashMethod does; remembers a bounded number of topics' hashes."""

    def __init__(self) -> None:
        self._stems: dict[bytes, int] = {}

    def hash(self, topic: bytes, key: bytes) -> int:
        """Return RocketMQ's key hash, 0 to 2^31 - 1: |hash|, and 0 for -2^31."""
        if len(key) <= _LONG_CHARS and key.isascii():
            value = extended_hash(self.stem(topic), key)
        else:
            value = string_hash((topic + b"#" + key).decode("utf-8", "replace"))
        return (-value if value & _SIGN else value) & _POSITIVE

    def hashes(self, topics: Sequence[bytes], keys: Sequence[bytes]) -> list[int]:
        """Return `hash` of each key, whose topics are given."""
        if max(map(len, keys), default=0) > CHARS_MAX or not b"".join(keys).isascii():
            return [self.hash(topic, key) for topic, key in zip(topics, keys, strict=True)]
        stem = self.stem
        return [
            (-value if (value := stem(topic) * _POWERS[len(key)] + own) & _SIGN else value) & _POSITIVE
            for topic, key, own in zip(topics, keys, ascii_hashes(keys), strict=True)
        ]

    def stem(self, topic: bytes) -> int:
        """Hash of the text before a key of a topic."""
        value = self._stems.get(topic)
        if value is None:
            if len(self._stems) >= _CACHE_MAX:
                self._stems.clear()
            value = self._stems[topic] = string_hash((topic + b"#").decode("utf-8", "replace"))
        return value
