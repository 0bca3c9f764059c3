"""Answers that wait until the results which they stand for are durable elsewhere (`ackFlush: sync` over Kafka, D52).

A result for a group of the node's own store is durable by the end of the turn, with the journal. One for a group that
reads from Kafka is once it is committed there: the answer to the call that carried it, a pull or a submit, waits for
that where the configuration says so. What cannot be committed any more, since the partition is another node's, was not
taken: the connection ends without an answer, as where the journal fails (D5), and the client sends its results again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from proxy.port.connection import Connection
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


def when_durable(
    waits: Collection[WhenDurable],
    connection: Connection,
    go_on: Callable[[ReplySlot], None],
    slot: ReplySlot | None = None,
) -> None:
    """Keep the place of a request, and continue with it once what was taken is durable.

    Args:
        waits: Of the groups of its results.
        connection: Where it came from.
        go_on: Answers in its place.
        slot: Its place; None: it is the request being handled.
    """
    slot = slot or connection.later()
    left = len(waits)

    def reported(durable: bool) -> None:
        nonlocal left
        if connection.closed:
            return
        if not durable:
            connection.leave_unanswered()
            return
        left -= 1
        if not left:
            go_on(slot)

    for wait in waits:
        wait(reported)
