"""The way out of the stations: a checked send goes to its sink, the store or Kafka; a call that must wait is parked.

A sink answers through the send's slot: the store after the flush that covers it (`proxy.services.publishing`), Kafka
when each message is decided (`proxy.services.kafka.sends`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from broker.deduplication.deduplication import NumberedRun
from broker.log.put import LogPosition, Put
from proxy.port.reply_slot import ReplySlot
from proxy.services.encoders import Refused, Stored
from proxy.services.topic_port import TopicPort
from proxy.wire.replies import encode_result_reply


class CheckedSend(NamedTuple):
    """A call of a producer whose messages are checked.

    Attributes:
        slot: Its place.
        puts: Its messages.
        ports: The port of each, for counters and rate tokens.
        stored: Encodes the reply when all are stored.
        refused: Encodes it when not all are.
        judged: What is known of their numbers; None when they have none.
        timeout_ms: How long its client waits; None or 0 without such a bound.
        atomic: What goes to the store is stored together or not at all (D8).
        published: They count as published with this.
    """

    slot: ReplySlot
    puts: Sequence[Put]
    ports: Sequence[TopicPort]
    stored: Stored
    refused: Refused = encode_result_reply
    judged: NumberedRun | None = None
    timeout_ms: int | None = None
    atomic: bool = False
    published: bool = True


class Sink(Protocol):
    """Takes checked sends: the store, or Kafka."""

    def append(self, send: CheckedSend) -> Sequence[LogPosition]:
        """Take a send; it is answered through its slot. Raises Refusal: nothing of it is taken.

        Returns:
            Where each message is staged; none where that is not known yet.
        """
        ...


class ParkedCall:
    """A call that has left its pass and waits: for its rate, behind such a call, or for Kafka.

    Until then its frame is in the node's account.
    """

    __slots__ = ("_held", "_take", "slot")

    def __init__(self, slot: ReplySlot, take: Callable[[], None]) -> None:
        """Begin to wait; `take` takes the call another time, and answers it through its slot."""
        self.slot = slot
        self._take = take
        self._held = len(slot.call.frame)
        slot.connection.hold(self._held)

    def leave(self) -> None:
        """Wait no longer."""
        self.slot.connection.hold(-self._held)

    def go_on(self) -> None:
        """Take the call, unless its client has gone: that sends it again elsewhere."""
        self.leave()
        if self.slot.connection.closed:
            return
        try:
            self._take()
        except Exception as error:
            # The caller is a timer, or another call: neither would answer.
            self.slot.connection.fail(self.slot, error)


class Route:
    """The station that picks a send's sink.

    Args:
        store: The node's own.
        kafka: Takes sends of which some messages, or all, are for Kafka; None where there is no cluster.
        enter: Enters numbers that were judged new and are staged; Kafka's are entered there.
    """

    def __init__(
        self, store: Sink, kafka: Sink | None, enter: Callable[[NumberedRun, Sequence[LogPosition]], None]
    ) -> None:
        self._store = store
        self._kafka = kafka
        self._enter = enter

    def append(self, send: CheckedSend) -> None:
        """Hand a send to its sink. Raises Refusal: nothing of it is taken; rate tokens were given back."""
        if self._kafka is not None and any(port.in_kafka for port in send.ports):
            self._kafka.append(send)
            return
        positions = self._store.append(send)
        if send.judged is not None:
            self._enter(send.judged, positions)
