"""The stations that calls of the producer port share when each is taken by itself: judge, park, refuse, sink, answer.

What differs by call (rights, checks, encoding) is the call's own: `proxy.services.producer_service`,
`proxy.services.transaction_service`, `proxy.services.delay_service`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import NamedTuple

from broker.deduplication.deduplication import MISSING
from broker.errors import StoreError
from broker.log.put import Put
from proxy.port.reply_slot import ReplySlot
from proxy.services.access.guard import Guard
from proxy.services.kafka.sends import KafkaSends
from proxy.services.keyed_sends import KeyedSends
from proxy.services.limited_sends import LimitedSends
from proxy.services.message_checks import MessageChecks
from proxy.services.message_rules import Refusal
from proxy.services.publishing import Publishing
from proxy.services.send_call import TakenSend
from proxy.services.topic_port import TopicPort


class Stations(NamedTuple):
    """What the services of one producer port share.

    Attributes:
        checks: What messages are asked.
        publishing: Stores and answers.
        keyed: Knows what was sent before.
        limited: Sends above a rate that are tried again.
        kafka: Takes calls with messages for Kafka; None where the configuration has no cluster.
        guard: Looks at rights, where there are rules.
    """

    checks: MessageChecks
    publishing: Publishing
    keyed: KeyedSends
    limited: LimitedSends
    kafka: KafkaSends | None
    guard: Guard


class StationedSend(TakenSend):
    """A call that is taken station by station."""

    __slots__ = ("stations",)

    def __init__(self, stations: Stations, slot: ReplySlot, timeout_ms: int | None, count: int = 1) -> None:
        super().__init__(slot, timeout_ms, count)
        self.stations = stations

    @abstractmethod
    def take(self) -> None:
        """Check the call and hand it to its sink, or answer it. Raises Refusal."""

    def begin(self) -> None:
        """Take the call now, or when those of its connection that wait for a rate are answered."""
        limited = self.stations.limited
        if self.slot.connection in limited.waiting:
            limited.follow(self)
        else:
            self.run()

    def run(self) -> None:
        """Take the call; where it is refused or fails, it is answered or waits for a second try."""
        try:
            self.take()
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """Answer a call that is refused or failed, or have it tried once more where it is above a rate."""
        if not isinstance(error, Refusal):
            # The caller may be a timer, or another call: neither would answer.
            self.slot.connection.fail(self.slot, error)
        elif not self.stations.limited.wait(error, self):
            self.refuse(error)

    def is_decided(self) -> bool:
        """Judge numbered messages: whether there is nothing to store, now or as yet. Raises Refusal.

        Where all were stored before, the call is answered so; where some are under way to Kafka, it waits for these.
        """
        stations = self.stations
        if stations.kafka is not None and stations.kafka.wait(self):
            return True
        self.judged = stations.keyed.judge(self.keys)
        if not self.judged.places or MISSING in self.judged.places:
            return False
        stations.keyed.answer(self)
        return True

    def append(self) -> None:
        """Hand what is checked to its sink. Raises Refusal: nothing of it is taken; rate tokens were given back."""
        stations = self.stations
        if stations.kafka is not None and any(port.in_kafka for port in self.ports):
            stations.kafka.append(self)
            return
        self.positions = stations.publishing.append(self)
        if self.judged is not None:
            stations.keyed.stored(self.judged, self.positions)

    def send_on(self, put: Put, port: TopicPort) -> None:
        """Hand what was checked with others to its sink; it is answered where that is refused or fails."""
        self.puts, self.ports = [put], [port]
        try:
            self.append()
        except Exception as error:
            self.fail(error)

    def flushed(self, error: StoreError | None) -> None:
        """Answer: the flush that covers its messages has ended, or failed."""
        self.stations.publishing.flushed(self, error)

    def repeated(self, error: StoreError | None) -> None:
        """Answer: its messages were stored before, and are durable now, or are not."""
        self.stations.keyed.repeated(self, error)

    def refuse(self, refusal: Refusal, count: int | None = None) -> None:
        """Answer with the reason, and count `count` messages as refused; by default all of the call."""
        count = self.count if count is None else count
        self.stations.publishing.refuse(self.slot, refusal, self.refused(refusal), count)
