"""What the checkers write down of a run: publishes, where messages are, what the store holds at the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.simulation.timer_account import TimerAccount
from tests.simulation.waits import Wait


class PromiseBroken(AssertionError):
    """The node broke a promise; the text says which, and the facts."""

    def __init__(self, promise: int, text: str) -> None:
        super().__init__(f"promise {promise} is broken: {text}")
        self.promise = promise


class Stamp(NamedTuple):
    """When something happened, as the node saw it.

    Attributes:
        sequence: Exact order of arrivals and writes.
        turn: Events of one turn count as simultaneous where the node may settle them in either order.
        time: Seconds.
        life: Number of the node process, from 0.
        late: A delivery decided some unknown time before it was written (the peer did not read).
        asked: Of a delivery: the first turn in which the node can have decided it.
        asked_time: Likewise in seconds, where `time` is only that of reading.
    """

    sequence: int
    turn: int
    time: float
    life: int
    late: bool = False
    asked: int = 0
    asked_time: float | None = None


@dataclass(slots=True)
class Publish:
    """One message as it was sent.

    `outcome`: pending, stored, refused or unknown. `batch`: uid of its first member. `name`: the same in every run of a
    seed in which the message is sent, whatever else is.
    """

    uid: int
    topic: str
    key: str
    tag: str
    body: bytes
    path_key: str | None
    json: bool
    connection: int
    sent: Stamp
    outcome: str = "pending"
    settled: Stamp | None = None
    receipt: tuple[str, int] | None = None
    batch: int = 0
    wait: Wait | None = None
    timer: TimerAccount | None = None
    name: str = ""

    @property
    def cancelled(self) -> bool:
        """Whether it is never to be delivered."""
        return self.timer is not None and self.timer.cancelled

    @property
    def may_be_cancelled(self) -> bool:
        """Whether it need not be delivered."""
        return self.timer is not None and self.timer.may_be_cancelled


class Place(NamedTuple):
    """Where a message is: the identity of acks."""

    topic: str
    qid: str
    offset: int


class Stored(NamedTuple):
    """One record of the final scan."""

    place: Place
    physical: int
    uid: int
    key: str
    tag: str
    body: bytes


class DeadLetter(NamedTuple):
    """One record of a dead-letter topic."""

    group: str
    origin: Place
    uid: int
    reason: str
    attempts: int
    body: bytes
