"""JSON that keeps what it was given: key order, integers of any size, and numbers as their producer wrote them (W21).

Python's float forgets that `1.10` was not `1.1`, and has no `1e400`. So a number with a fraction or an exponent whose
text is not Python's own becomes a `JsonNumber`: a float in every way, which knows its text and is written as that.
Noticing it costs 1.7 us per such number where plain parsing costs 0.04, so `Json` does it only in pipelines that write
JSON again (`writes_numbers`).

What is not kept in a body that an action changed: blanks between tokens, which of several escapes a character was
written with, and all but the last of a name's values in one object (it keeps the place of the first; DDMQ takes the
last, too). A body that no action can have changed leaves to the byte as it came (`is_intact`, set by the registry).
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from pyddmq.actions import Unprocessable

__all__ = ["JsonNumber", "body_of", "decode_exact", "encode", "json_line", "json_of", "text_of"]


class JsonNumber(float):
    """A number of a body whose text differs from the one that Python would write for it.

    Attributes:
        text: As it is in the body.
    """

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> JsonNumber:
        made = super().__new__(cls, text)
        made.text = text
        return made


def _number(text: str) -> float:
    plain = float(text)
    return plain if repr(plain) == text else JsonNumber(text)


def _other(value: Any) -> Any:
    if isinstance(value, JsonNumber):
        return msgspec.Raw(value.text.encode())
    if isinstance(value, bool | int | float | str):
        # A subclass that a script made.
        plain = next(kind for kind in (bool, int, float, str) if isinstance(value, kind))
        return plain(value)
    raise TypeError(f"{type(value).__name__} cannot be represented in JSON")


decode_exact = msgspec.json.Decoder(float_hook=_number).decode
"""Parse a body. Raises msgspec.DecodeError, UnicodeDecodeError and RecursionError."""

encode = msgspec.json.Encoder(enc_hook=_other, decimal_format="number").encode
"""Write parsed data as UTF-8. Raises TypeError, ValueError and RecursionError for what JSON cannot hold."""


def body_of(data: Any, body: bytes | memoryview, *, is_intact: bool) -> bytes:
    """Return a message's body as it leaves.

    Args:
        data: What the actions made of it: bytes, text, or parsed data.
        body: As it was published.
        is_intact: No action can have changed it, but for parsing it.

    Raises:
        Unprocessable: JSON cannot hold the data; the text says what.
    """
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    if is_intact:
        return bytes(body)
    if isinstance(data, str):
        return data.encode("utf-8", "surrogatepass")
    return json_of(data)


def json_of(data: Any) -> bytes:
    """Return data as JSON in UTF-8. Raises Unprocessable for what JSON cannot hold."""
    try:
        return encode(data)
    except (TypeError, ValueError, RecursionError) as error:
        raise Unprocessable(f"cannot be written as JSON: {error}") from error


def json_line(text: bytes) -> msgspec.Raw | None:
    """Return a body that is JSON as it is, without line ends, to be put into a line of JSON; None: it is not JSON.

    It is not parsed into objects: numbers beyond a float, repeated names and escapes of any kind stay as they are.
    """
    try:
        decode_exact(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            # Takes the escapes of lone surrogates, which are JSON by its grammar.
            json.loads(text.decode(), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            return None
    # A JSON string cannot contain a raw line end, so every line end here is between two tokens.
    return msgspec.Raw(text.replace(b"\n", b" ").replace(b"\r", b" "))


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def text_of(value: Any) -> str:
    """Text of a value as parameters carry it: a text as it is, everything else as JSON."""
    return value if isinstance(value, str) else encode(value).decode()
