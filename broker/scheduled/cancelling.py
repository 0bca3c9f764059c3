"""What cancels of whatever waits in a store have in common: their answers, and how a message is looked for (D31)."""

from __future__ import annotations

from collections.abc import Generator
from enum import StrEnum

from broker.format.message import LogMessage
from broker.query import KeyQuery, Searchable, by_unique_key


class CancelEffect(StrEnum):
    """What became of a cancel: the message is not delivered; it was, or is being; no record of it is left."""

    CANCELLED = "cancelled"
    TOO_LATE = "too_late"
    UNKNOWN = "unknown"


def run_query(query: KeyQuery) -> Generator[None, None, list[LogMessage]]:
    """Run a query in its steps; return what it found."""
    yield from query.steps()
    return query.found


def delivered(store: Searchable, topic: str, unique_key: str) -> Generator[None, None, CancelEffect]:
    """Whether a message of that name is in its topic already; for one of which nothing waits."""
    if topic not in store.topics:
        return CancelEffect.UNKNOWN
    found = yield from run_query(by_unique_key(store, topic, unique_key, limit=1))
    return CancelEffect.TOO_LATE if found else CancelEffect.UNKNOWN
