"""A call of a producer that is taken by itself: what it holds until its answer, what it waits for, how it continues.

A call that must wait (for its rate, behind such a call, for Kafka) is parked: its frame is in the node's account, and
later the call is taken from its first station again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from broker.deduplication.deduplication import NumberedRun
from broker.errors import StoreError
from broker.format.record import RecordSummary
from broker.log.put import LogPosition, Put
from proxy.port.reply_slot import ReplySlot
from proxy.services.message_rules import Refusal
from proxy.services.topic_port import TopicPort
from pyddmq.codes import Repeat

_NONE_WAITS: Mapping[int, int] = {}


class Again(NamedTuple):
    """A message that was stored before, or just now.

    Attributes:
        key: Its UNIQ_KEY.
        entry: What its record says; None when that is not known any more, or it is in Kafka.
        in_kafka: Its qid and offset there; None when it is not there, or that is not known any more.
    """

    key: bytes
    entry: RecordSummary | None
    in_kafka: tuple[str, int] | None = None


class TakenSend(ABC):
    """A call with messages on its way through the stations.

    Attributes:
        slot: Its place.
        timeout_ms: How long its client waits; None or 0 without such a bound.
        count: Its messages.
        keys: UNIQ_KEY of each, where its producer numbers them.
        judged: What is known of these; None when they have none.
        puts: Its messages, checked.
        ports: The port of each, for counters and rate tokens.
        positions: Where the store has staged them.
        waiting: By place, those that wait for their moment, as `MessageChecks.delay` has it.
        atomic: What goes to the store is stored together or not at all (D8).
        published: They count as published with this.
    """

    __slots__ = (
        "_held",
        "atomic",
        "count",
        "judged",
        "keys",
        "ports",
        "positions",
        "puts",
        "slot",
        "timeout_ms",
        "waiting",
    )
    published = True

    def __init__(self, slot: ReplySlot, timeout_ms: int | None, count: int = 1) -> None:
        self.slot = slot
        self.timeout_ms = timeout_ms
        self.count = count
        self.keys: Sequence[bytes | None] = ()
        self.judged: NumberedRun | None = None
        self.puts: list[Put] = []
        self.ports: list[TopicPort] = []
        self.positions: Sequence[LogPosition] = ()
        self.waiting: Mapping[int, int] = _NONE_WAITS
        self.atomic = False
        self._held = 0

    # How it waits and continues.

    @abstractmethod
    def run(self) -> None:
        """Take the call from its first station: it is answered, parked, or goes to its sink."""

    @abstractmethod
    def send_on(self, put: Put, port: TopicPort) -> None:
        """Hand what was checked with others to its sink; it is answered where that is refused or fails."""

    def park(self) -> None:
        """Begin to wait."""
        self._held = len(self.slot.call.frame)
        self.slot.connection.hold(self._held)

    def unpark(self) -> None:
        """Wait no longer."""
        self.slot.connection.hold(-self._held)

    def go_on(self) -> None:
        """Take the call after its wait, unless its client has gone: that sends it again elsewhere."""
        self.unpark()
        if not self.slot.connection.closed:
            self.run()

    @abstractmethod
    def flushed(self, error: StoreError | None) -> None:
        """Answer: the flush that covers its messages has ended, or failed."""

    @abstractmethod
    def repeated(self, error: StoreError | None) -> None:
        """Answer: its messages were stored before, and are durable now, or are not."""

    # How it is answered.

    @abstractmethod
    def stored(self, positions: Sequence[LogPosition]) -> bytes:
        """Encode the reply when all are stored, given where."""

    @abstractmethod
    def stored_again(self, again: Sequence[Again], repeat: Repeat) -> bytes:
        """Encode the reply when they were stored before."""

    @abstractmethod
    def refused(self, refusal: Refusal) -> bytes:
        """Encode the reply when not all are stored."""

    @abstractmethod
    def refuse(self, refusal: Refusal, count: int | None = None) -> None:
        """Answer with the reason, and count `count` messages as refused; by default all of the call."""
