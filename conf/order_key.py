"""What `orderKey` may say: QID, KEY, or a JSON path that names one value (R30)."""

from __future__ import annotations

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
        raise ValueError(f"{text!r} is no order key; write QID, KEY or a JSON path such as $['case id']")
    # Imported here, since a configuration without JSON paths does not pay for the parser.
    from jsonpath import JSONPath, JSONPathError, compile

    path = text if text.startswith("$") else f"${text}" if text.startswith("[") else f"$.{text}"
    try:
        query = compile(path)
    except JSONPathError as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(
            f"{text!r} is no JSON path ({reason}); write QID, KEY or a path such as $['case id']"
        ) from error
    if not isinstance(query, JSONPath) or not query.singular_query():
        raise ValueError(f"{text!r} may match several values; an order key names one, such as $.case.id")
    if query.empty():
        raise ValueError(f"{text!r} names the whole body, which is no key; name one field, such as $.id")
    return path
