"""JSON that keeps what it was given: key order, integers of any size, and numbers as their producer wrote them (W21).

Python's float forgets that `1.10` was not `1.1`, and has no `1e400`. So a number with a fraction or an exponent whose
text is not Python's own becomes a `JsonNumber`: a float in every way, which knows its text and is written as that.
Noticing it costs 1.7 us per such number where plain parsing costs 0.04, so `Json` does it only in pipelines that write
JSON again (`writes_numbers`).

What is not kept: blanks between tokens, which of several escapes a character was written with, and all but the last of
a name's values in one object (it keeps the place of the first; DDMQ takes the last, too).
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["JsonNumber", "decode_exact", "encode", "text_of"]


class JsonNumber(float):
    """A number of a body whose text differs from the one that Python would write for it.

    Attributes:
        text: As it stands in the body.
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
    raise TypeError(f"{type(value).__name__} is nothing that JSON can hold")


decode_exact = msgspec.json.Decoder(float_hook=_number).decode
"""Parse a body. Raises msgspec.DecodeError, UnicodeDecodeError and RecursionError."""

encode = msgspec.json.Encoder(enc_hook=_other, decimal_format="number").encode
"""Write parsed data as UTF-8. Raises TypeError, ValueError and RecursionError for what JSON cannot hold."""


def text_of(value: Any) -> str:
    """Text of a value as parameters carry it: a text as it is, everything else as JSON."""
    return value if isinstance(value, str) else encode(value).decode()
