"""The power losses of a run, and which acks may have gone with them (D9)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.simulation.accounts import Account, Delivery
from tests.simulation.facts import Place, Stamp

ACK_LOSS_SECONDS = 0.1
"""D9: how old an ack may be and still be lost with the power."""
SLACK_SECONDS = 0.001


class PowerLoss(NamedTuple):
    """One loss.

    Attributes:
        life: Which process it ended.
        time: When.
        window: How old an ack may be and still have gone with it; 0: none may.
        by_disk: The disk told the window, of a real process: when something that a client sent arrived, nobody knows.
    """

    life: int
    time: float
    window: float
    by_disk: bool


class LogCut(NamedTuple):
    """A power loss under `flush: async`.

    Attributes:
        life: The last process before it.
        time: When.
        since: What was answered from then on may be gone.
        present: What the log had after it.
        uids: The messages of that.
        queues: Topic and qid of each queue that lost something.
    """

    life: int
    time: float
    since: float
    present: Mapping[Place, int]
    uids: frozenset[int]
    queues: frozenset[tuple[str, str]]


class PowerLosses(list[PowerLoss]):
    """All losses of a run, in their order.

    Attributes:
        cuts: Those that may have taken records from the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self.cuts: list[LogCut] = []

    def may_take(self, stamp: Stamp, place: Place) -> bool:
        """Whether an ack of that time, and of a message there, may have gone with the power.

        Where a queue lost its end, acks below that may go, too: what vouched for them was of the end.
        """
        return any(
            # What a client read when the node was dead had been written before.
            each.window > 0 and each.life == stamp.life and each.time - stamp.time <= each.window + SLACK_SECONDS
            for each in self
        ) or any(each.life >= stamp.life and (place.topic, place.qid) in each.queues for each in self.cuts)

    def excuse(self, account: Account, delivery: Delivery) -> bool:
        """Whether a repeated delivery comes from acks that went with the power."""
        lost = [
            each.stamp for each in account.answers if each.success and each.stamp.sequence < delivery.stamp.sequence
        ]
        return (
            bool(lost)
            and delivery.stamp.life > lost[0].life
            and any(self._may_take(account, each, delivery.place) for each in lost)
        )

    def _may_take(self, account: Account, answered: Stamp, place: Place) -> bool:
        """Whether a success of that time may have gone.

        The stamp says when it reached the node; of a real process it says when the client sent it, and a node that
        starts, or has no processor, takes it much later. Then its answer decides, and one without an answer may go.
        """
        if self.may_take(answered, place):
            return True
        if not any(each.by_disk and each.window > 0 and each.life == answered.life for each in self):
            return False
        confirmed = [stamp for stamp, _ in account.confirmed if stamp.life == answered.life]
        return not confirmed or self.may_take(confirmed[0], place)
