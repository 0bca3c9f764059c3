"""Partitions of which nothing comes, although the cluster answers that there is more.

librdkafka remembers the highest epoch of a partition's leader. A topic that is created again begins at 0, and after a
restart of a broker what is remembered is above: the leader refuses every fetch, and the client tries again without end
or report. A new client reads it.
"""

from __future__ import annotations

from collections.abc import Iterable

from upstream.kafka.link import Place
from upstream.kafka.stream import Stream

LOOKS = 75
"""The ends of logs are asked for each second. A fetch takes 60 s at most (`socket.timeout.ms`)."""


class Unread:
    """Those of one member."""

    def __init__(self) -> None:
        self._seen: dict[Place, tuple[int, int]] = {}
        """By partition: up to where it was read, and at how many further looks it was the same."""
        self._tried: set[Place] = set()
        """A new client was made for these, and nothing came since: another one would not help."""

    def looked(self, stream: Stream, end: int) -> None:
        """Note where the log of a stream ends, as far as it may be read."""
        place, reached = stream.queue.place, stream.reached
        before, looks = self._seen.get(place, (reached, -1))
        if reached >= end or reached > before >= 0:
            self._tried.discard(place)
        if stream.rests or not 0 <= reached < end:
            self.gone([place])
        else:
            self._seen[place] = reached, looks + 1 if reached == before else 0

    def gone(self, places: Iterable[Place]) -> None:
        """Forget partitions that this member does not have any more."""
        for place in places:
            self._seen.pop(place, None)

    def due(self) -> dict[Place, int]:
        """Return the partitions for which a new client is to be made, with where they stand; each once."""
        found = {
            place: reached
            for place, (reached, looks) in self._seen.items()
            if looks >= LOOKS and place not in self._tried
        }
        self._tried.update(found)
        return found
