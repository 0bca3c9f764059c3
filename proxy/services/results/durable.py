"""Answers that wait until the results which they stand for are durable elsewhere (`ackFlush: sync` over Kafka, D52).

A result for a group of the node's own store is durable by the end of the turn, with the journal. One for a group that
reads from Kafka is once it is committed there: the answer to the call that carried it, a pull or a submit, waits for
that where the configuration says so. What cannot be committed any more, since the partition is another node's, was not
taken: the connection ends without an answer, as where the journal fails (D5), and the client sends its results again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import NamedTuple, Protocol

from proxy.port.reply_slot import ReplySlot
from proxy.wire.values import ConsumeResult
from upstream.delivery.group import ConsumerGroup

WhenDurable = Callable[[Callable[[bool], None]], None]
"""Reports, once, whether what has finished by now is durable."""


def not_durable(results: Collection[ConsumeResult], groups: Mapping[str, ConsumerGroup]) -> list[WhenDurable]:
    """Return what reports when some results are durable, of each group whose answers wait."""
    names = {each.group for each in results if each.success or each.fail}
    found = [groups[name] for name in names if name is not None and name in groups]
    return [wait for each in found if (wait := each.node.when_durable) is not None]


class Resumed(Protocol):
    """A call that answers when what it carried is durable.

    Attributes:
        slot: Its place.
    """

    @property
    def slot(self) -> ReplySlot: ...

    def go_on(self) -> None:
        """Answer."""
        ...


class ReadyReply(NamedTuple):
    """A call whose answer is known."""

    slot: ReplySlot
    reply: bytes

    def go_on(self) -> None:
        """Answer."""
        self.slot.answer(self.reply)


class DurableWait:
    """A call that waits until what it carried is durable.

    Args:
        call: Continues then.
        waits: Of the groups of its results.
    """

    __slots__ = ("_call", "_left")

    def __init__(self, call: Resumed, waits: Collection[WhenDurable]) -> None:
        self._call = call
        self._left = len(waits)
        for wait in waits:
            wait(self._reported)

    def _reported(self, durable: bool) -> None:
        connection = self._call.slot.connection
        if connection.closed:
            return
        if not durable:
            connection.leave_unanswered()
            return
        self._left -= 1
        if not self._left:
            self._call.go_on()
