"""A group that consumes what loops deliver: its clients, and its account.

An occurrence has no number in its properties, since all of a loop are made of one add. The account gives each id one
when it is first seen, so that the promises of every group are held for it: an offset names one message for ever, what
was answered with success does not come again, and what was stored is consumed or dead-lettered.
"""

from __future__ import annotations

from typing import Any

from tests.simulation.clients import Consumer
from tests.simulation.facts import Place, Publish, Stamp
from tests.simulation.ledger import Ledger
from tests.simulation.loops import TOPIC

GROUP = "loops"


class OccurrenceLedger(Ledger):
    """The account of that group."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._uids: dict[str, int] = {}

    def uid_of(self, name: str, body: bytes) -> int:
        """Number of the occurrence with an id; that it was asked for is the business of `loops`."""
        uid = self._uids.setdefault(name, len(self._uids) + 1)
        if uid not in self.publishes:
            self.sent(Publish(uid, TOPIC, name, "", body, None, False, 0, Stamp(0, 0, 0.0, 0), "unknown"))
        return uid


class OccurrenceReader(Consumer):
    """Pulls occurrences and answers them by habit."""

    def uid_of(self, message: Any, place: Place, body: bytes) -> int:
        """Number of the message."""
        assert isinstance(self.around.ledger, OccurrenceLedger)
        self.around.counts["loop_delivered"] += 1
        return self.around.ledger.uid_of(message.key, body)
