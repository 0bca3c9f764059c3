"""Moments as options of the command line."""

from __future__ import annotations

from broker.runtime.seams import Clock
from proxy.cli.errors import CliError
from proxy.operate.moments import parse_duration, parse_moment
from proxy.process.exit_codes import ExitCode


def moment_option(text: str, *, option: str, clock: Clock, span_is_age: bool = True) -> int:
    """Return the moment that an option names, in ms since the epoch.

    Args:
        text: In any form that `proxy.operate.moments` knows.
        option: The option it was given with.
        clock: What an age is counted from.
        span_is_age: Whether a span alone is so long ago; see `parse_moment`.

    Raises:
        CliError: It is none.
    """
    try:
        return parse_moment(text, clock.wall_ms(), span_is_age=span_is_age)
    except ValueError as error:
        raise CliError(f"{option}: {error}", ExitCode.USAGE) from error


def duration_option(text: str, *, option: str) -> int:
    """Return the time span that an option names, in ms. Raises CliError: it is none."""
    try:
        return parse_duration(text)
    except ValueError as error:
        raise CliError(f"{option}: {error}", ExitCode.USAGE) from error
