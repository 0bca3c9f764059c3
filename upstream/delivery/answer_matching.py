"""Whose answer it is: that of the present delivery of a message, or of an earlier one (D12, D40).

DDMQ's results name an offset and no delivery (W3). A client that says which delivery it answers is taken at its word.
Of any other, an answer is of the present delivery unless that cannot be known: it came over another connection than the
delivery went to, the reply with the delivery had not left when the client sent it, or a delivery of the same message to
the same client ended without an answer, which this may be. Each such delivery takes one answer for itself, so that the
key of a message waits for as many answers as a client may still give, or for the timeout.
"""

from __future__ import annotations

from collections.abc import Callable

from upstream.job import DeliveredBatch, GroupQueue
from upstream.message_holder import Holder


def is_of_present(
    group_queue: GroupQueue, offset: int, delivery: DeliveredBatch | None, holder: Holder, number: int | None
) -> bool:
    """Whether an answer is of the present delivery of a message; else it is taken for that of an earlier one.

    Args:
        group_queue: The queue.
        offset: What is answered.
        delivery: The present delivery; None while the message is not out.
        holder: Who answers.
        number: Of the delivery that is answered, as the client says; None where it says none.
    """
    if number is not None:
        if delivery is not None and delivery.number == number:
            return True
        _take(group_queue, offset, lambda earlier: earlier.number == number)
        return False
    if _take(group_queue, offset, lambda earlier: speaks_for(holder, earlier.holder)):
        return False
    if delivery is None or not speaks_for(holder, delivery.holder):
        return False
    return delivery.holder is not holder or delivery.reply <= holder.heard


def is_of_only(delivery: DeliveredBatch, holder: Holder, number: int | None, *, certain: bool = False) -> bool:
    """Whether a success from somebody else can only be of the present delivery: there was no other.

    Args:
        delivery: The present delivery.
        holder: Who answers.
        number: As for `is_of_present`.
        certain: The message is known to have been handed out once.
    """
    return number is None and delivery.holder is not holder and (certain or not delivery.number)


def speaks_for(holder: Holder, held_by: Holder) -> bool:
    """Whether it is the holder, or its client over a new connection after the old one closed (S2 re-sends results)."""
    return held_by is holder or (held_by.closed and _client(held_by) == _client(holder))


def _client(holder: Holder) -> str:
    return holder.address.rpartition(":")[0]


def _take(group_queue: GroupQueue, offset: int, of: Callable[[DeliveredBatch], bool]) -> bool:
    """Give an answer to the earliest unanswered delivery that it may be of; whether there is one."""
    unanswered = group_queue.unanswered.get(offset, [])
    for place, earlier in enumerate(unanswered):
        if of(earlier):
            del unanswered[place]
            if not unanswered:
                del group_queue.unanswered[offset]
            return True
    return False
