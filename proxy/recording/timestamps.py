"""Timestamps of records in Kafka, which producers may set to anything."""

from __future__ import annotations

AHEAD_MS_MAX = 60_000
AGE_MS_MAX = 366 * 86_400_000
"""A producer sets CreateTime. A timestamp further ahead of the clock, or older than this, says nothing of an age."""


def plausible(moment_ms: int, time_ms: int) -> int | None:
    """Return a record's timestamp, or None where no age follows from it."""
    return moment_ms if time_ms - AGE_MS_MAX <= moment_ms <= time_ms + AHEAD_MS_MAX else None
