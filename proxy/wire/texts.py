"""Texts that may be no UTF-8; those of a message that is sent are judged: topic, key, tags, version, properties.

The body is not, in either field: DDMQ declares `value` a string, and its client for PHP puts bytes there.
"""

from __future__ import annotations

from collections.abc import Iterable

from proxy.wire.errors import TextError

VALUE = 3
"""Field id of the body of old clients, kept as it came."""

NAME_BYTES_MAX = 1_024
"""What is decoded of a name: no topic, group or queue has one a quarter as long (`broker.runtime.names`), and bytes
that are not UTF-8 cost a hundred times what others do."""
TEXT_CHARS_MAX = 1_000
"""Longest text for people in a reply."""
CLIENT_NAME_MAX = 64
"""Characters of a client's own name that are kept."""

_NAMES = {1: "topic", 2: "key", 5: "tags", 8: "version"}


def shown(raw: bytes) -> str:
    """Return a name that a client asks for; one that is not UTF-8 or too long becomes one that nothing can have."""
    if len(raw) > NAME_BYTES_MAX:
        return raw[:NAME_BYTES_MAX].decode("utf-8", "replace") + "…"
    return raw.decode("utf-8", "backslashreplace")


def fitted(text: str) -> str:
    """Return a text for people that may quote a client; what is longer than `TEXT_CHARS_MAX` ends in an ellipsis."""
    return text if len(text) <= TEXT_CHARS_MAX else text[: TEXT_CHARS_MAX - 1] + "…"


def client_name(said: str | bytes) -> str:
    """Return what a client says of itself, fit to be shown: bounded, on one line, without control characters.

    It is for people alone: a client may say anything, so nothing is decided by it.

    Args:
        said: The field `version` of a request, as it came.

    Returns:
        At most `CLIENT_NAME_MAX` characters, each that cannot be shown as `?`; "" for what holds nothing but spaces.
    """
    # No character has more than four bytes.
    begin = said[: 4 * CLIENT_NAME_MAX]
    text = begin.decode("utf-8", "replace") if isinstance(begin, bytes) else begin
    return "".join(each if each.isprintable() else "?" for each in text[:CLIENT_NAME_MAX]).strip()


def text_or_none(raw: bytes) -> str | None:
    """Return a name, or None for one that nothing can have: a result that names nothing is passed over (D13)."""
    if len(raw) > NAME_BYTES_MAX:
        return None
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


def check_text(raw: bytes, field_id: int) -> None:
    """Check one text of a Message. Raises TextError."""
    try:
        raw.decode()
    except UnicodeDecodeError:
        raise TextError(_NAMES[field_id]) from None


def check_pairs(names: Iterable[bytes], values: Iterable[bytes]) -> None:
    """Check properties. Raises TextError."""
    for name, value in zip(names, values, strict=True):
        try:
            text = name.decode()
        except UnicodeDecodeError:
            raise TextError(f"name {name[:60]!r} of a property") from None
        try:
            value.decode()
        except UnicodeDecodeError:
            raise TextError(f"value of the property {text[:60]!r}") from None
