"""What clients of a run decided, as a list: every message that was sent, every delivery that was not simply answered.

A run writes down what its clients draw, and can be made again of such a list instead or of a part of it: see `shrink`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

SUCCESS = "success"


class Send(NamedTuple):
    """A message: its producer's number, the number of that producer's call, and its number in a batch."""

    producer: int
    call: int
    member: int = 0


class Deed(NamedTuple):
    """What a group's client did with a message, by its name and the number of the delivery: `failed`, `silent`..."""

    group: str
    name: str
    delivery: int
    did: str


class Deeds:
    """What the clients of one run do.

    Args:
        sends: The only messages that are sent; None: all that are drawn.
        answers: All that is done but to answer with success; None: as drawn.
    """

    def __init__(self, sends: frozenset[Send] | None = None, answers: frozenset[Deed] | None = None) -> None:
        self._sends, self._answers = sends, answers
        self.sent: list[Send] = []
        self.answered: list[Deed] = []
        self._deliveries: Counter[tuple[str, str]] = Counter()

    def may_send(self, send: Send) -> bool:
        """Whether a message is sent; writes it down."""
        if self._sends is not None and send not in self._sends:
            return False
        self.sent.append(send)
        return True

    def answer(self, group: str, name: str, draw: Callable[[], str]) -> str:
        """Return what is done with a delivery; what is drawn is written down."""
        self._deliveries[group, name] += 1
        place = group, name, self._deliveries[group, name]
        if self._answers is None:
            did = draw()
        else:
            did = next((each.did for each in self._answers if each[:3] == place), SUCCESS)
        if did != SUCCESS:
            self.answered.append(Deed(*place, did))
        return did
