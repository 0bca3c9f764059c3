"""What was appended since the last flush began: flights that the next one takes."""

from __future__ import annotations

from broker.log.commit_log import CommitLog
from broker.log.flight import Flight
from broker.log.put import Done
from broker.queues.consume_queue import ConsumeQueue
from broker.queues.topics import Topic


class Staged:
    """Appended records of one store that no flush has taken, in flights of which each is shown at one moment.

    Attributes:
        dones: Who is told of the last flight.
        touched: Its queues and their topics.
        last_record: Commit-log offset of the last record that was appended, -1 without any.
        moment_ms: When it is shown at the earliest, which is its store timestamp at least; 0 for as soon as it can be.
    """

    __slots__ = ("_flights", "_log", "dones", "last_record", "moment_ms", "touched")

    def __init__(self, log: CommitLog) -> None:
        self.dones: list[Done] = []
        self.touched: dict[ConsumeQueue, Topic] = {}
        self.last_record = -1
        self._log = log
        self._flights: list[Flight] = []
        self.moment_ms = 0

    def wait_for(self, moment_ms: int) -> None:
        """Show what is appended from now on, until the next flush begins, no sooner than at a moment.

        Args:
            moment_ms: Since the epoch, no earlier than one that was told before; at most `Landed.ahead_us` away.
        """
        if moment_ms != self.moment_ms:
            if self.touched:
                self._flights.append(self._close())
            self.moment_ms = moment_ms

    def take(self) -> list[Flight]:
        """Return the flights, of which the last is marked as such; what follows belongs to the next flush."""
        flights, self._flights = [*self._flights, self._close()], []
        flights[-1].is_last = True
        self.moment_ms = 0
        return flights

    def _close(self) -> Flight:
        flight = Flight(
            self.dones,
            self.touched,
            end=self._log.end,
            last_record=self.last_record,
            not_before_ms=self.moment_ms,
        )
        self.dones, self.touched = [], {}
        return flight
