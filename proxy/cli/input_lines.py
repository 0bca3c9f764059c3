"""Lines of a file or a pipe, in batches: a pipe that pauses is not waited for with lines in hand."""

from __future__ import annotations

import codecs
import io
import select
from collections.abc import Iterable, Iterator
from typing import BinaryIO, NamedTuple

from proxy.cli.errors import CliError
from proxy.process.exit_codes import ExitCode

BATCH_BYTES_MAX = 2_000_000
"""Body bytes per batch: well under the largest frame that a node takes by default (5,000,000)."""
_CHUNK_BYTES = 65_536
_WIDE_BYTES_MIN = 4


class InputLine(NamedTuple):
    """One body of the input: its line number from 1 on, its bytes, and how many bytes of the input end with it."""

    number: int
    body: bytes
    bytes_read: int


def lines_of(stream: BinaryIO) -> Iterator[InputLine | None]:
    """Read lines without their ends, empty ones left out; None where the next one has to be waited for.

    The first line says what ends a line: LF, or CR and LF. All other bytes are the body's, but for a mark of UTF-8.

    Raises:
        CliError: The input is UTF-16 or UTF-32.
    """
    number = bytes_read = 0
    rest = bytearray()
    end: bytes | None = None
    is_begun = False
    while chunk := stream.read1(_CHUNK_BYTES):  # type: ignore[attr-defined]  # every buffered reader has it
        rest += chunk
        if not is_begun:
            is_begun = True
            bytes_read = _mark_bytes(rest)
            del rest[:bytes_read]
        *whole, last = rest.split(b"\n") if b"\n" in chunk else (rest,)
        for each in whole:
            number += 1
            bytes_read += len(each) + 1
            if end is None:
                end = b"\r" if each.endswith(b"\r") else b""
            if body := bytes(each).removesuffix(end):
                yield InputLine(number, body, bytes_read)
        rest = last
        if _pauses(stream):
            yield None
    if body := bytes(rest):
        yield InputLine(number + 1, body, bytes_read + len(rest))


def _mark_bytes(start: bytearray) -> int:
    """How many bytes of the input's start are a mark of UTF-8. Raises CliError: it is UTF-16 or UTF-32."""
    is_wide = start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE))
    # Without a mark: of text in a western alphabet one byte of each pair is zero, always the same one.
    even, odd = start[0:256:2], start[1:256:2]
    has_zeros = (all(even) and not any(odd)) or (all(odd) and not any(even))
    if is_wide or (has_zeros and len(start) >= _WIDE_BYTES_MIN):
        text = "the input is UTF-16 or UTF-32: convert it first, for example with `iconv -f UTF-16 -t UTF-8`"
        raise CliError(text, ExitCode.USAGE)
    return len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0


def _pauses(stream: BinaryIO) -> bool:
    """Whether a read would wait: of a pipe or terminal whose writer is slower than we are."""
    try:
        return not select.select([stream.fileno()], [], [], 0)[0]
    except io.UnsupportedOperation:
        return False


def batches_of(lines: Iterable[InputLine | None], count_max: int) -> Iterator[list[InputLine]]:
    """Group lines into batches of up to `count_max` messages and `BATCH_BYTES_MAX` bytes (at least one message).

    A pause in the input ends a batch.
    """
    group: list[InputLine] = []
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
