"""Keys of a message as RocketMQ's index knows them, and their hashes.

Indexed are `UNIQ_KEY` and each space-separated word of `KEYS`, each as `topic#key`, by Java's hash of that text. The
hash costs 5 to 11 us for 40 characters in Python (D7), so the part that consecutive messages share, topic and the
first 20 digits of a unique key (address, process and loader), is remembered.
"""

from __future__ import annotations

from broker.java import extended_hash, string_hash

_UNIQUE = b"UNIQ_KEY\x01"
_KEYS = b"KEYS\x01"
_UNIQUE_LATER = b"\x02" + _UNIQUE
_KEYS_LATER = b"\x02" + _KEYS
_STEM_CHARS = 20
_UNIQUE_CHARS = 32
_LONG_CHARS = 256
_CACHE_MAX = 1024


def unique_key_of(block: bytes) -> bytes:
    """Value of `UNIQ_KEY` in a property block, b"" when there is none."""
    return _value(block, _UNIQUE, _UNIQUE_LATER)


def words_of(block: bytes) -> list[bytes]:
    """Words of `KEYS` in a property block, in their order."""
    value = _value(block, _KEYS, _KEYS_LATER)
    return [word for word in value.split(b" ") if word] if value else []


def keys_of(block: bytes) -> list[bytes]:
    """All keys under which a message is indexed, the unique key first. A word may come twice."""
    unique = _value(block, _UNIQUE, _UNIQUE_LATER)
    words = _value(block, _KEYS, _KEYS_LATER)
    keys = [unique] if unique else []
    if words:
        keys += [word for word in words.split(b" ") if word] if b" " in words else [words]
    return keys


def _value(block: bytes, first: bytes, later: bytes) -> bytes:
    at = block.find(later)
    if at >= 0:
        at += len(later)
    elif block.startswith(first):
        at = len(first)
    else:
        return b""
    end = block.find(b"\x02", at)
    return block[at:end] if end >= 0 else block[at:]


class KeyHasher:
    """Hashes `topic#key`; remembers a bounded number of common beginnings."""

    def __init__(self) -> None:
        self._stems: dict[tuple[bytes, bytes], int] = {}

    def hash(self, topic: bytes, key: bytes) -> int:
        """Return RocketMQ's key hash, 0 to 2^31 - 1: |hash|, and 0 for -2^31 (its indexKeyHashMethod)."""
        count = len(key)
        if count == _UNIQUE_CHARS and key.isascii():
            value = extended_hash(self._stem(topic, key[:_STEM_CHARS]), key[_STEM_CHARS:])
        elif count <= _LONG_CHARS and key.isascii():
            value = extended_hash(self._stem(topic, b""), key)
        else:
            text = (topic + b"#" + key).decode("utf-8", "replace")
            value = string_hash(text) & 0xFFFFFFFF
        if value < 0x80000000:
            return value
        return 0x100000000 - value if value != 0x80000000 else 0

    def _stem(self, topic: bytes, start: bytes) -> int:
        value = self._stems.get((topic, start))
        if value is None:
            if len(self._stems) >= _CACHE_MAX:
                self._stems.clear()
            value = string_hash((topic + b"#" + start).decode("utf-8", "replace"))
            self._stems[topic, start] = value
        return value
