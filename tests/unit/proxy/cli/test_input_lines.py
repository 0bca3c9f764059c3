"""Lines of a file that `pyddmq send` publishes."""

from __future__ import annotations

import io

import pytest

from proxy.cli.errors import CliError
from proxy.cli.input_lines import InputLine, lines_of


def bodies(data: bytes) -> list[bytes]:
    """Bodies of the lines of an input."""
    return [line.body for line in lines_of(io.BytesIO(data)) if line is not None]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"one\r\n\r\ntwo\r\n", [b"one", b"two"]),
        (b"one\ntwo\r\nthree\r", [b"one", b"two\r", b"three\r"]),
        (b"one\r\r\ntwo\r", [b"one\r", b"two\r"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo", [b"one", b"\xef\xbb\xbftwo"]),
        (b"\xef\xbb\xbf", []),
        (b"\x01\x00\x00\x00\x02\x00\x00\x00", [b"\x01\x00\x00\x00\x02\x00\x00\x00"]),
        (b"\xff\x00\x01\n\x00", [b"\xff\x00\x01", b"\x00"]),
        ("\u00e9\n".encode("latin-1"), [b"\xe9"]),
    ],
)
def test_bodies_are_the_bytes_between_the_line_ends(data: bytes, expected: list[bytes]) -> None:
    """Of a byte order mark at the start nothing is sent; a carriage return counts where lines end without one."""
    assert bodies(data) == expected


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_other_encodings_are_refused_with_what_to_do(encoding: str) -> None:
    """With and without a mark: nothing is sent."""
    with pytest.raises(CliError, match="UTF-16 or UTF-32: convert it first"):
        bodies("one\ntwo\n".encode(encoding))


def test_bytes_read_count_the_mark() -> None:
    """The progress bar ends at the size of the file."""
    lines = [line for line in lines_of(io.BytesIO(b"\xef\xbb\xbfone\ntwo")) if line is not None]
    assert lines == [InputLine(1, b"one", 7), InputLine(2, b"two", 10)]
