"""What becomes of a message that lacks a field which a transforming action is to take from it (W23)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator

from conf.base import Reload, setting
from conf.json_path import MISSING, full_path, parse_path
from pyddmq.actions import Context, Unprocessable

OnMissing = Literal["fail", "skip", "null"]


def _check_path(text: str) -> str:
    parse_path(text)
    return full_path(text)


JsonPathText = Annotated[str, AfterValidator(_check_path)]
"""A JSON path of the configuration; comes back in its full spelling."""


def missing_setting() -> Any:
    """Make the option `missing`."""
    return setting(
        "skip",
        "For a field that is missing or null: `skip` omits it, `null` writes null, `fail` dead-letters the "
        "message, since no retry can add the field. Counted in every case.",
        reload=Reload.GENERATION,
    )


def found(value: Any, name: str, path: str, on_missing: OnMissing, context: Context) -> Any:
    """Return a value that a getter found, None where null is to be written, or MISSING where nothing is.

    Raises:
        Unprocessable: It is missing, and that is to be a failure; the text names field and path.
    """
    if value is not MISSING and value is not None:
        return value
    context.count("missing")
    if on_missing == "fail":
        raise Unprocessable(f"{name}: the body has nothing at {path}")
    return None if on_missing == "null" else MISSING
