"""The numbers of a producer's messages: each message's id, its UNIQ_KEY, says who sent it and as which one.

A node that knows it stores what is sent again once; docs/deduplication.md has the form.
"""

from __future__ import annotations

import secrets
import time
from datetime import UTC, datetime

_MARK = "FE"
_CHANCE_BYTES = 5
NUMBER_MAX = (1 << 48) - 1


class Numbers:
    """A name that nobody else has, and the numbers of the messages that are sent under it.

    Attributes:
        name: 20 hex digits.
        next: Number of the next message.
    """

    __slots__ = ("name", "next")

    def __init__(self) -> None:
        """Take a name: by chance, and by the time."""
        now = datetime.fromtimestamp(time.time(), UTC)
        month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        start = int((now - month).total_seconds() * 1000)
        self.name = f"{_MARK}{secrets.token_hex(_CHANCE_BYTES).upper()}{start:08X}"
        self.next = start << 16

    def keys(self, count: int) -> list[str]:
        """Ids of the next messages; they are the next ones until `take`."""
        return [f"{self.name}{number:012X}" for number in range(self.next, self.next + count)]

    def take(self, count: int) -> None:
        """Go on behind messages that are stored."""
        self.next += count
