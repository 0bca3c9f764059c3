"""What travels with a committed offset: what is finished above it, and the failed attempts (D53).

Kafka keeps one text per group and partition beside the committed offset, and of 4,096 characters it refuses one. So
the next owner of a partition knows what the committed offset cannot say: which offsets above it are finished, how often
the unfinished ones failed and when they are due again, which are stopped, whether the owner before left in order, and
of which topic all that is: one that is created again has the name of the one before.

The text is `p1`, the committed offset that it belongs to, and parts with a letter each, in any order:

    p1;<offset>[;c][;I<topic id>][;R<base64>|;B<base64>][;F<base64>][;x][;T<partition>.<offset>.<sum>.<key>]

`c`: the owner left in order and no client has a message of it. `I`: the topic's id in base64. `R`: finished
ranges above the offset as LEB128 pairs of (unfinished, finished) lengths. `B`: the same as a bit per offset, the lowest
bit first, deflated; the shorter one is written. `F`: failures as LEB128 numbers, six for each offset: its distance from
the one before, fails, errors, timeouts, stop, and the moment of its next attempt (ms since the epoch, 0: at once). `x`:
not all of it had room: the highest finished ranges are left out, then failures. `T`: where all of it is, in the same
form (`upstream.kafka.commits.blobs`). What is left out, and is nowhere else, is delivered again, or counted again.

Whoever reads it believes nothing: a text of another form, of another offset, or with numbers that cannot be is as
none (`CommitMetadata.foreign`).
"""

from __future__ import annotations

import base64
import binascii
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from operator import mul
from typing import NamedTuple

from upstream.kafka.commits.blobs import BLOB_MAX, NAME_MAX, Named
from upstream.progress.tracker import AHEAD_MAX, AttemptFailures, Stop

TEXT_MAX = 4095
"""Characters that Kafka takes."""
TEXT_MIN = 56
"""Characters of a text that says no more than its offset, at most."""
NAMED_MIN = TEXT_MIN + len(";T") + NAME_MAX
"""Likewise of one that names a blob besides."""
_VERSION = "p1"
_TOPIC_ID = re.compile("[A-Za-z0-9+/_-]{1,22}")
"""In base64: of its last two digits Kafka writes the one pair, and librdkafka the other."""
_RANGES_MAX = 16_384
_FAILURES_MAX = 1_024
"""More of these have no room in a text, in whatever form."""
_BITMAP_MAX = 1 << 22
"""Offsets that a bitmap may cover: half a megabyte while it is made or read."""
_INTEGER_MAX = 1 << 62

Ranges = Sequence[tuple[int, int]]
"""Start and end (exclusive) of each, ascending."""


class CommitMetadata(NamedTuple):
    """What a text says.

    Attributes:
        ranges: Finished above the committed offset.
        failures: Failed attempts of unfinished offsets.
        clean: The owner before left in order, and nothing was out.
        foreign: There was a text, and it is none of ours or not whole; the rest is empty then.
        cut: Not all had room.
        blob: Where all of it is; None: nowhere else.
        topic_id: Of which topic it is; "": not known.
    """

    ranges: Ranges = ()
    failures: Mapping[int, AttemptFailures] = {}
    clean: bool = False
    foreign: bool = False
    cut: bool = False
    blob: Named | None = None
    topic_id: str = ""


def is_topic_id(text: str) -> bool:
    """Whether a text can be the id of a topic."""
    return _TOPIC_ID.fullmatch(text) is not None


def encode(
    offset: int,
    ranges: Ranges,
    failures: Mapping[int, AttemptFailures],
    *,
    clean: bool,
    topic_id: str = "",
    room: int = TEXT_MAX,
) -> tuple[str, bool]:
    """Return the text for an offset that is to be committed, and whether all of it had room.

    Args:
        offset: The committed offset: the first that is unfinished.
        ranges: Finished above it.
        failures: Of unfinished offsets from it on.
        clean, topic_id: As in `CommitMetadata`.
        room: Characters at most.
    """
    assert not topic_id or is_topic_id(topic_id), "what is written is read"
    head = f"{_VERSION};{offset}" + (";c" if clean else "") + (f";I{topic_id}" if topic_id else "")
    failed = sorted(failures.items())
    count = len(failed) if room > TEXT_MAX else min(len(failed), _FAILURES_MAX)
    while (tail := _failures(offset, failed[:count])) and len(head) + len(tail) + len(";x") > room:
        # 7/8 of 1 is 0, so this ends; the earliest are kept, which are redelivered first.
        count = count * 7 // 8
    left = room - len(head) - len(tail)
    kept = len(ranges) if room > TEXT_MAX else min(len(ranges), _RANGES_MAX)
    text = _ranges(offset, ranges[:kept])
    whole = count == len(failed) and kept == len(ranges) and len(text) <= left
    while len(text) > left - (0 if whole else len(";x")):
        # By how much it is too long, since each attempt costs milliseconds.
        kept = min(kept * 7 // 8, kept * left // len(text))
        text = _ranges(offset, ranges[:kept])
    result = head + text + tail + ("" if whole else ";x")
    assert len(result) <= room, "what is written is taken"
    return result, whole


def encode_named(
    offset: int,
    ranges: Ranges,
    failures: Mapping[int, AttemptFailures],
    *,
    clean: bool,
    blob: Named,
    topic_id: str = "",
    room: int = TEXT_MAX,
) -> str:
    """Return the text for an offset that is to be committed, which names the blob with all of it."""
    text, _ = encode(offset, ranges, failures, clean=clean, topic_id=topic_id, room=room - len(";T") - NAME_MAX)
    return f"{text};T{blob}"


def decode(text: str, offset: int, *, room: int = TEXT_MAX) -> CommitMetadata:
    """Read the text that was committed with an offset; `room` as that of `encode`."""
    if not text:
        return CommitMetadata()
    version, _, rest = text.partition(";")
    said, *parts = rest.split(";")
    if version != _VERSION or len(text) > room or said != str(offset):
        return CommitMetadata(foreign=True)
    ranges: Ranges = ()
    failures: Mapping[int, AttemptFailures] = {}
    blob: Named | None = None
    topic_id = ""
    letters = [part[:1] for part in parts]
    if len(set(letters)) != len(letters) or not set("RBFIcx" + "T" * (room == TEXT_MAX)).issuperset(letters):
        return CommitMetadata(foreign=True)
    try:
        for part in parts:
            if part[0] == "T":
                blob = Named.read(part[1:])
            elif part[0] == "I":
                if not is_topic_id(topic_id := part[1:]):
                    raise ValueError("no topic id")
            elif part[0] in "RBF":
                data = base64.b64decode(part[1:], validate=True)
                if part[0] == "F":
                    failures = _read_failures(offset, data)
                else:
                    ranges = _read_runs(offset, data) if part[0] == "R" else _read_bits(offset, data)
    except (ValueError, binascii.Error, zlib.error):
        return CommitMetadata(foreign=True)
    return CommitMetadata(ranges, failures, "c" in letters, cut="x" in letters, blob=blob, topic_id=topic_id)


def decode_blob(text: str, offset: int) -> CommitMetadata:
    """Read what a blob says of an offset."""
    return decode(text, offset, room=BLOB_MAX)


def _failures(offset: int, failed: Sequence[tuple[int, AttemptFailures]]) -> str:
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


def _read_failures(offset: int, data: bytes) -> dict[int, AttemptFailures]:
    numbers = list(_numbers(data))
    if len(numbers) % 6:
        raise ValueError("six numbers for each failure")
    found: dict[int, AttemptFailures] = {}
    for place in range(0, len(numbers), 6):
        distance, fails, errors, timeouts, stopped, due_ms = numbers[place : place + 6]
        offset += distance
        if stopped not in tuple(Stop) or offset in found or max(fails, errors, timeouts) >= 1 << 31:
            raise ValueError("no failure")
        found[offset] = AttemptFailures(fails, errors, timeouts, stopped, due_ms)
    return found


def _ranges(offset: int, ranges: Ranges) -> str:
    if not ranges:
        return ""
    lengths: list[int] = []
    before = offset
    for start, end in ranges:
        assert before <= start < end, "ranges ascend and are above the committed offset"
        lengths += (start - before, end - start)
        before = end
    runs = bytearray()
    if max(lengths) <= 0x7F:
        runs += bytes(lengths)
    else:
        for length in lengths:
            _put(runs, length)
    best = ";R" + base64.b64encode(runs).decode()
    if len(best) > 64 and before - offset <= _BITMAP_MAX:
        # Highest first, as a number is written: made in one go, since there may be 100,000 of them ten times a second.
        marks = "".join(map(mul, cycle("10"), reversed(lengths)))
        assert len(marks) == before - offset, "one bit for each offset from the committed one on"
        packed = zlib.compress(int(marks, 2).to_bytes((before - offset + 7) // 8, "little"), 1)
        best = min(best, ";B" + base64.b64encode(packed).decode(), key=len)
    return best


def _read_runs(offset: int, data: bytes) -> Ranges:
    numbers = list(_numbers(data))
    if len(numbers) % 2:
        raise ValueError("two numbers for each range")
    found: list[tuple[int, int]] = []
    place = offset
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        # Before the range is kept: a text of a few bytes may claim any length.
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
