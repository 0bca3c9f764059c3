"""Moments on the command line: `2026-05-01T10:00:00Z`, milliseconds since the epoch, or `10m ago`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from broker.seams import Clock
from proxy.cli.codes import ExitCode
from proxy.cli.errors import CliError

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)(?:\s+ago)?")
_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_HELP = "give ISO 8601 with a zone (2026-05-01T10:00:00Z), milliseconds since the epoch, or an age (10m ago)"


def parse_moment(text: str, *, option: str, clock: Clock) -> int:
    """Return the moment in ms since the epoch.

    Args:
        text: ISO 8601 with a zone; a whole number of milliseconds; a number with ms, s, m, h or d, and `ago` or not.
        option: The option it was given with.
        clock: What an age is counted from.

    Raises:
        CliError: It is none of these.
    """
    text = text.strip()
    if text.isdigit():
        return int(text)
    if age := _AGO.fullmatch(text):
        return clock.wall_ms() - round(float(age[1]) * _UNITS_MS[age[2]])
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise CliError(f"{option} {text!r} is no moment; {_HELP}", ExitCode.USAGE) from None
    if moment.tzinfo is None:
        raise CliError(f"{option} {text!r} has no time zone; {_HELP}", ExitCode.USAGE)
    return round(moment.timestamp() * 1000)


def moment_text(wall_ms: int) -> str:
    """Return a moment in UTC, ISO 8601 with milliseconds; the number itself where the calendar ends."""
    try:
        return datetime.fromtimestamp(wall_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except (ValueError, OverflowError, OSError):
        return str(wall_ms)
