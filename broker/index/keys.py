"""Keys of a message as RocketMQ's index knows them, and their hashes.

Indexed are `UNIQ_KEY` and each space-separated word of `KEYS`, each as `topic#key`, by Java's hash of that text. Of a
name that stands there twice the last value counts, as for everybody who reads the properties: a member of a batch of
RocketMQ's Java client has a UNIQ_KEY of its own, and then that of the batch. The first one is indexed, too: it is the
one that the producer was told. The hash costs 5 to 11 us for 40 characters in Python (D7), so what stands before the
key is remembered, and keys are hashed many at once (`broker.index.hashing`).
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.format.java import extended_hash, string_hash
from broker.format.properties import find_property
from broker.index.hashing import CHARS_MAX, ascii_hashes

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
    """Unique keys under which a message is indexed: the last that stands in its property block, then the first."""
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
        """Hash of what stands before a key of a topic."""
        value = self._stems.get(topic)
        if value is None:
            if len(self._stems) >= _CACHE_MAX:
                self._stems.clear()
            value = self._stems[topic] = string_hash((topic + b"#").decode("utf-8", "replace"))
        return value
