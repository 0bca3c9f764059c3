"""What `orderKey` may say: QID, KEY, or a JSON path that names one value (R30)."""

from __future__ import annotations

from conf.json_path import full_path, parse_path

FIXED_KEYS = ("QID", "KEY")


def is_json_path(order_key: str | None) -> bool:
    """Whether the order key is read from the message's JSON body, and not from its queue or message key."""
    return order_key is not None and order_key not in FIXED_KEYS


def check_order_key(text: str) -> str:
    """Return the order key in its full spelling: `QID`, `KEY`, or a path that starts with `$`.

    DDMQ also takes paths without the `$` (`a.b`, `x[0]`); they come back with it.

    Raises:
        ValueError: A sentence that says what would be right.
    """
    if text in FIXED_KEYS:
        return text
    if text.upper() in FIXED_KEYS:
        raise ValueError(f"{text!r} is ambiguous; write {text.upper()}, or `$.{text}` for a field of the JSON body")
    if not text or text != text.strip():
        raise ValueError(f"{text!r} is not a valid order key; write QID, KEY or a JSON path such as $['case id']")
    try:
        query = parse_path(text)
    except ValueError as error:
        raise ValueError(f"{error}; an order key is QID, KEY or a path such as $['case id']") from error
    path = full_path(text)
    if not query.singular_query():
        raise ValueError(f"{text!r} may match several values; an order key selects one, such as $.case.id")
    if query.empty():
        raise ValueError(f"{text!r} selects the whole body; an order key selects one field, such as $.id")
    return path
