"""What travels with a committed offset: what is finished above it, and the failed attempts (D53).

Kafka keeps one text per group and partition beside the committed offset, and of 4,096 characters it refuses one. So
the next owner of a partition knows what the committed offset cannot say: which offsets above it are finished, how often
the unfinished ones failed and when they are due again, which are stopped, and whether the owner before left in order.

The text is `p1`, the committed offset that it belongs to, and parts with a letter each, in any order:

    p1;<offset>[;c][;R<base64>|;B<base64>][;F<base64>][;x]

`c`: the owner left in order and nobody has a message of it. `R`: finished ranges above the offset as LEB128 pairs of
(unfinished, finished) lengths. `B`: the same as a bit per offset, the lowest bit first, deflated; the shorter one is
written. `F`: failures as LEB128 numbers, six for each offset: its distance from the one before, fails, errors,
timeouts, stop, and the moment of its next attempt (ms since the epoch, 0: at once). `x`: not all of it had room: the
highest finished ranges are left out, then failures; what is left out is delivered again, or counted anew.

Whoever reads it believes nothing: a text of another form, of another offset, or with numbers that cannot be is as
none (`Known.foreign`).
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from upstream.progress.tracker import AHEAD_MAX, Failure, Stop

TEXT_MAX = 4095
"""Characters that Kafka takes."""
_VERSION = "p1"
_BITMAP_MAX = 1 << 22
"""Offsets that a bitmap may cover: half a megabyte while it is made or read."""
_INTEGER_MAX = 1 << 62

Ranges = Sequence[tuple[int, int]]
"""Start and end (exclusive) of each, ascending."""


class Known(NamedTuple):
    """What a text says.

    Attributes:
        ranges: Finished above the committed offset.
        failures: Failed attempts of unfinished offsets.
        clean: The owner before left in order, and nothing was out.
        foreign: There was a text, and it is none of ours or not whole; the rest is empty then.
        cut: Not all had room.
    """

    ranges: Ranges = ()
    failures: Mapping[int, Failure] = {}
    clean: bool = False
    foreign: bool = False
    cut: bool = False


def encode(offset: int, ranges: Ranges, failures: Mapping[int, Failure], *, clean: bool) -> tuple[str, bool]:
    """Return the text for an offset that is to be committed, and whether all of it had room.

    Args:
        offset: The committed offset: the first that is unfinished.
        ranges: Finished above it.
        failures: Of unfinished offsets from it on.
        clean: As `Known.clean`.
    """
    head = f"{_VERSION};{offset}" + (";c" if clean else "")
    failed = sorted(failures.items())
    count = len(failed)
    while (tail := _failures(offset, failed[:count])) and len(head) + len(tail) + len(";x") > TEXT_MAX:
        count = count * 7 // 8
    room = TEXT_MAX - len(head) - len(tail)
    text = _ranges(offset, ranges)
    whole = count == len(failed) and len(text) <= room
    kept = len(ranges)
    while len(text) > room - (0 if whole else len(";x")):
        kept = kept * 7 // 8
        text = _ranges(offset, ranges[:kept])
    result = head + text + tail + ("" if whole else ";x")
    assert len(result) <= TEXT_MAX, "what is written is taken"
    return result, whole


def decode(text: str, offset: int) -> Known:
    """Read the text that was committed with an offset."""
    if not text:
        return Known()
    version, _, rest = text.partition(";")
    said, *parts = rest.split(";")
    if version != _VERSION or len(text) > TEXT_MAX or said != str(offset):
        return Known(foreign=True)
    ranges: Ranges = ()
    failures: Mapping[int, Failure] = {}
    letters = [part[:1] for part in parts]
    if len(set(letters)) != len(letters) or not {"R", "B", "F", "c", "x"}.issuperset(letters):
        return Known(foreign=True)
    try:
        for part in parts:
            if part[0] in "RBF":
                data = base64.b64decode(part[1:], validate=True)
                if part[0] == "F":
                    failures = _read_failures(offset, data)
                else:
                    ranges = _read_runs(offset, data) if part[0] == "R" else _read_bits(offset, data)
    except (ValueError, binascii.Error, zlib.error):
        return Known(foreign=True)
    return Known(ranges, failures, "c" in letters, cut="x" in letters)


def _failures(offset: int, failed: Sequence[tuple[int, Failure]]) -> str:
    if not failed:
        return ""
    data = bytearray()
    before = offset
    for each, failure in failed:
        for number in (each - before, failure.fails, failure.errors, failure.timeouts, failure.stopped):
            _put(data, number)
        _put(data, max(0, failure.due_wall_ms))
        before = each
    return ";F" + base64.b64encode(data).decode()


def _read_failures(offset: int, data: bytes) -> dict[int, Failure]:
    numbers = list(_numbers(data))
    if len(numbers) % 6:
        raise ValueError("six numbers for each failure")
    found: dict[int, Failure] = {}
    for place in range(0, len(numbers), 6):
        distance, fails, errors, timeouts, stopped, due_ms = numbers[place : place + 6]
        offset += distance
        if stopped not in tuple(Stop) or offset in found or max(fails, errors, timeouts) >= 1 << 31:
            raise ValueError("no failure")
        found[offset] = Failure(fails, errors, timeouts, stopped, due_ms)
    return found


def _ranges(offset: int, ranges: Ranges) -> str:
    if not ranges:
        return ""
    runs = bytearray()
    before = offset
    for start, end in ranges:
        assert before <= start < end, "ranges ascend and are above the committed offset"
        _put(runs, start - before)
        _put(runs, end - start)
        before = end
    best = ";R" + base64.b64encode(runs).decode()
    if len(best) > 64 and before - offset <= _BITMAP_MAX:
        bits = 0
        for start, end in ranges:
            bits |= ((1 << (end - start)) - 1) << (start - offset)
        packed = zlib.compress(bits.to_bytes((before - offset + 7) // 8, "little"), 6)
        best = min(best, ";B" + base64.b64encode(packed).decode(), key=len)
    return best


def _read_runs(offset: int, data: bytes) -> Ranges:
    numbers = list(_numbers(data))
    if len(numbers) % 2:
        raise ValueError("two numbers for each range")
    found: list[tuple[int, int]] = []
    place = offset
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        start, place = place + gap, place + gap + length
        if not length or place - offset > AHEAD_MAX:
            raise ValueError("no range")
        found.append((start, place))
    return found


def _read_bits(offset: int, data: bytes) -> Ranges:
    inflater = zlib.decompressobj()
    packed = inflater.decompress(data, _BITMAP_MAX // 8 + 1)
    if not inflater.eof or inflater.unused_data or len(packed) > _BITMAP_MAX // 8:
        raise ValueError("no bitmap")
    marks = f"{int.from_bytes(packed, 'little'):b}"[::-1]
    found: list[tuple[int, int]] = []
    end = 0
    while (start := marks.find("1", end)) >= 0:
        end = marks.find("0", start)
        end = len(marks) if end < 0 else end
        found.append((offset + start, offset + end))
    return found


def _put(data: bytearray, number: int) -> None:
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)


def _numbers(data: bytes) -> Iterator[int]:
    number = shift = 0
    for byte in data:
        number |= (byte & 0x7F) << shift
        shift += 7
        if number > _INTEGER_MAX:
            raise ValueError("a number is too large")
        if byte < 0x80:
            yield number
            number = shift = 0
    if shift:
        raise ValueError("a number ends in the middle")
