"""Messages that come from a group's retry topic (D37), as the checkers see them: the same one, at another place."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.facts import Place, PromiseBroken


class RetryPlaces:
    """Which message is meant by a place of a retry topic.

    Attributes:
        count: Deliveries from there.
    """

    def __init__(self) -> None:
        self.count = 0
        self._published: dict[int, Place] = {}
        self._retried: dict[tuple[str, Place], Place] = {}

    def published(self, place: Place, uid: int) -> None:
        """Note where a message was published."""
        self._published[uid] = place

    def delivered(self, group: str, place: Place, uid: int) -> Place:
        """Return where a message was published that is delivered at a place.

        Raises:
            PromiseBroken: 7: a place of the retry topic named two messages.
        """
        if not is_retry(place):
            return place
        self.count += 1
        return self.named(group, place, uid)

    def named(self, group: str, place: Place, uid: int) -> Place:
        """`delivered`, of a place of a retry topic, by whatever told that the message is there."""
        first = self._published[uid]
        if self._retried.setdefault((group, place), first) != first:
            raise PromiseBroken(7, f"{place} of {group} named {self._retried[group, place]} and now names {first}")
        return first

    def taken(self, present: Mapping[Place, int]) -> set[Place]:
        """Forget the places that a power loss took, by what is there after it; return them."""
        gone = {key for key, first in self._retried.items() if self._published.get(present.get(key[1], -1)) != first}
        for key in gone:
            del self._retried[key]
        return {place for _, place in gone}

    def of(self, group: str, place: Place) -> Place:
        """Where the message was published that was delivered at a place; the place itself for all others."""
        return self._retried.get((group, place), place)


def is_retry(place: Place) -> bool:
    """Whether it is one of a retry topic: its qid says so."""
    return "retry" in place.qid
