"""A producer's name and a message's number, as they stand in its UNIQ_KEY (docs/deduplication.md). No I/O."""

from __future__ import annotations

import re
from typing import NamedTuple

from broker.format.unique_key import KEY_BYTES, numbered_keys

MARK = b"FE"
NAME_BYTES = 20
START_AT = 12
"""Where in a name the upper digits of its first number stand."""
NUMBER_MAX = (1 << 48) - 1
_START_SHIFT = 16
_LOW_DIGITS, _LOW_MASK = 4, 0xFFFF

_is_key = re.compile(rb"FE[0-9A-F]{%d}" % (KEY_BYTES - len(MARK))).fullmatch


class Numbered(NamedTuple):
    """A producer's name (20 digits) and the number of one of its messages."""

    name: bytes
    number: int


def parse_key(key: bytes) -> Numbered | None:
    """Return what a UNIQ_KEY says; None when it is not one of this form, or its number is below its name's first."""
    if _is_key(key) is None:
        return None
    name, number = key[:NAME_BYTES], int(key[NAME_BYTES:], 16)
    return Numbered(name, number) if number >= first_number(name) else None


def first_number(name: bytes) -> int:
    """Return the number of the first message of a name."""
    return int(name[START_AT:], 16) << _START_SHIFT


def are_in_order(keys: list[bytes], first: Numbered) -> bool:
    """Whether these are the keys of one producer's messages, one after the other from that number on."""
    name, number = first
    count = len(keys)
    if count == 1:
        return True
    if number + count - 1 > NUMBER_MAX:
        return False
    low = number & _LOW_MASK
    if low + count - 1 <= _LOW_MASK:
        # Nearly every batch: only the last four digits differ, and the accelerator makes those.
        return keys == numbered_keys(keys[0][:-_LOW_DIGITS], low, count)
    return keys == [b"%b%012X" % (name, each) for each in range(number, number + count)]
