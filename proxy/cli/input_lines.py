"""Lines of a file or a pipe, in batches: a pipe that pauses is not waited for with lines in hand."""

from __future__ import annotations

import io
import select
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

BATCH_BYTES_MAX = 2_000_000
"""Body bytes per batch: well under the largest frame that a node takes by default (5,000,000)."""
_CHUNK_BYTES = 65_536


class Line(NamedTuple):
    """One body of the input: its line number from 1 on, its bytes, and how many bytes of the input end with it."""

    number: int
    body: bytes
    bytes_read: int


def lines_of(stream: BinaryIO) -> Iterator[Line | None]:
    """Read lines without their ends, empty ones left out; None where the next one has to be waited for."""
    number = bytes_read = 0
    rest = bytearray()
    while chunk := stream.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]  # every buffered reader has it
        rest += chunk
        *whole, last = rest.split(b"\n") if b"\n" in chunk else (rest,)
        for each in whole:
            number += 1
            bytes_read += len(each) + 1
            if body := bytes(each).rstrip(b"\r"):
                yield Line(number, body, bytes_read)
        rest = last
        if _pauses(stream):
            yield None
    if body := bytes(rest).rstrip(b"\r"):
        yield Line(number + 1, body, bytes_read + len(rest))


def _pauses(stream: BinaryIO) -> bool:
    """Whether a read would wait: of a pipe or terminal whose writer is slower than we are."""
    try:
        return not select.select([stream.fileno()], [], [], 0)[0]
    except io.UnsupportedOperation:
        return False


def batches_of(lines: Iterable[Line | None], count_max: int) -> Iterator[list[Line]]:
    """Group lines into batches of up to `count_max` messages and `BATCH_BYTES_MAX` bytes (at least one message).

    A pause in the input ends a batch.
    """
    group: list[Line] = []
    size = 0
    for line in lines:
        if group and (line is None or len(group) >= count_max or size + len(line.body) > BATCH_BYTES_MAX):
            yield group
            group, size = [], 0
        if line is not None:
            group.append(line)
            size += len(line.body)
    if group:
        yield group
