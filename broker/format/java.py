"""Java's `String.hashCode`, which decides tags codes (RocketMQ) and the queue of a key (D7): a promise to keep.

The hash runs over UTF-16 code units, so characters beyond U+FFFF count as two.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from operator import mul

_CHUNK = 256
_UTF_16 = f"utf-16-{sys.byteorder[0]}e"  # array takes the machine's byte order
_POWERS_31: list[int] = [pow(31, _CHUNK - 1 - place, 1 << 32) for place in range(_CHUNK)]
# _POWERS[n] holds 31^(n-1) .. 31^0: the weights of n code units.
_POWERS = [_POWERS_31[_CHUNK - count :] for count in range(_CHUNK + 1)]
_CACHE_MAX = 4096
_tags_codes: dict[bytes, int] = {b"": 0}


def string_hash(text: str) -> int:
    """Return `text.hashCode()` of Java: a signed 32-bit integer; 0 for the empty text.

    Lone surrogates hash as the code unit that they are.
    """
    ascii_only = text.isascii()
    units: Sequence[int] = text.encode("ascii") if ascii_only else array("H", text.encode(_UTF_16, "surrogatepass"))
    count = len(units)
    if count <= _CHUNK:
        value = sum(map(mul, units, _POWERS[count]))
    else:
        value = 0
        for start in range(0, count, _CHUNK):
            part = units[start : start + _CHUNK]
            value = (value * pow(31, len(part), 1 << 32) + sum(map(mul, part, _POWERS[len(part)]))) & 0xFFFFFFFF
    return int((value + 0x80000000) & 0xFFFFFFFF) - 0x80000000


def tags_code(tags: bytes) -> int:
    """Return the tags code of a TAGS value in UTF-8: its hash, 0 when there is none.

    Results are cached (a system has few tags); the cache is bounded and starts again when full.
    """
    code = _tags_codes.get(tags)
    if code is None:
        if len(_tags_codes) >= _CACHE_MAX:
            _tags_codes.clear()
            _tags_codes[b""] = 0
        code = _tags_codes[tags] = string_hash(tags.decode("utf-8", "replace"))
    return code


def queue_of_hash(value: int, queues: int) -> int:
    """Queue, 0 to `queues` - 1, of a hash: the only place where one is chosen so (`check_accelerator` equals it).

    It is RocketMQ's SelectMessageQueueByHash: Java's remainder, which keeps the sign, then its absolute value. That is
    |value| modulo the number of queues, for the smallest integers, too: no absolute value overflows here (W80).

    Args:
        value: Java's hash of a key, or a producer's hashId (R96); signed, of any size.
        queues: How many queues the topic has, 1 or more.
    """
    return abs(value) % queues


def queue_of_key(key: str, queues: int) -> int:
    """Queue, 0 to `queues` - 1, of a message key: that of its Java hash (D7)."""
    return queue_of_hash(string_hash(key), queues)


def extended_hash(value: int, text: bytes) -> int:
    """Go on with a hash over up to 256 more ASCII characters.

    Args:
        value: Hash of the text before, 0 without any; signed or not.
        text: The characters.

    Returns:
        The hash of both together, not signed: 0 to 2^32 - 1.
    """
    count = len(text)
    total: int = sum(map(mul, text, _POWERS[count]))
    return (value * _EXTEND[count] + total) & 0xFFFFFFFF


_EXTEND = [pow(31, count, 1 << 32) for count in range(_CHUNK + 1)]
