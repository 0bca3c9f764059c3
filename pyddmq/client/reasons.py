"""The reason that a consumer sends to the node for a message that its work failed on."""

from __future__ import annotations

REASON_CHARS_MAX = 300
"""More is not sent; the node keeps no more."""


def reason_text(reason: str) -> str:
    """Return a reason as it may be sent: short, and always to be encoded."""
    return reason[:REASON_CHARS_MAX].encode("utf-8", "replace").decode()


def reason_of(error: BaseException) -> str:
    """Return the kind of an exception and what it says; the kind alone where it cannot say anything."""
    kind = type(error).__name__
    try:
        said = str(error)
    except Exception:
        said = ""
    return f"{kind}: {said}" if said else kind
