"""The transactional ids of an owned partition.

A target that hangs takes an id with it: Kafka ends a transaction only when all its partitions take the end, so the id
cannot be had until the target is well. So an owner has a few: one for batches of healthy targets, and spare ones, by
which targets under suspicion are tried alone. Where the first is lost, a spare one takes its place at once: what was
written by the lost one was not to be committed. An id that cannot be had within a second is given up, and another with
a number of its own takes its place: so no number of hanging targets stops an owner.

The numbers are the text of the group's commit for the partition. A number is in it before its id is used, so a new
owner takes all ids by which the former one may commit. One that it cannot have is given up once the lease of the former
owner is over, who commits nothing afterwards (`owner`).

    taking -> free -> writing -> free      `take`, a write, its end
    writing -> asked -> free               the transaction hangs or its abort failed; the id is taken in the background
    taking, asked -> closed                given up; in its place there is a new one
    new -> asked -> free                   once its number is in the text
    any -> taking                          `doubt`: nothing is fired before the id is taken
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from broker.format.numbers import whole_number
from broker.runtime.later import Later
from broker.runtime.seams import Scheduler
from upstream.kafka.link import KafkaFailure, KafkaTransactions, OutgoingRecord, Written

LANES = 3
_AGAIN_SECONDS = 1.0
_GIVE_UP_SECONDS = 1.0
TRANSACTIONS_MAX = 2
"""Transactions of a node under way at a time: while one commits, the next is written."""


class TransactionTurns:
    """Lets a few partitions of a node have a transaction under way at a time (D64).

    The others gather what becomes due meanwhile: a transaction costs Kafka and the node as much for one message as for
    a hundred.
    """

    def __init__(self, limit: int = TRANSACTIONS_MAX) -> None:
        self._free = limit
        self._waiting: dict[Callable[[], None], None] = {}

    def take(self, wake: Callable[[], None]) -> bool:
        """Take a turn; False: there is none, and `wake` is called when one is."""
        if not self._free:
            self._waiting[wake] = None
            return False
        self._free -= 1
        return True

    def give(self) -> None:
        """Give a turn back, for the partition that has waited longest."""
        self._free += 1
        if self._waiting:
            wake = next(iter(self._waiting))
            del self._waiting[wake]
            wake()

    def forget(self, wake: Callable[[], None]) -> None:
        """A partition waits no more."""
        self._waiting.pop(wake, None)


class TransactionLane:
    """One id.

    Attributes:
        number: Of the id.
        state: As the module has it.
        trouble: Why it cannot be had; "": it can, or is being asked for.
    """

    def __init__(
        self,
        number: int,
        transactions: KafkaTransactions,
        scheduler: Scheduler,
        changed: Callable[[], None],
        given_up: Callable[[TransactionLane], None],
    ) -> None:
        self.number = number
        self.state: Literal["new", "taking", "asked", "free", "writing", "closed"] = "taking"
        self.trouble = ""
        self._transactions = transactions
        self._changed = changed
        self._again = Later(scheduler, self._begin)
        self._give_up = Later(scheduler, partial(given_up, self))
        self._asked = 0

    def doubt(self) -> None:
        """Another may have the id, or what it wrote last is not known: it is to be taken."""
        self.state = "taking"
        self._asked += 1
        self._again.cancel()
        self._give_up.cancel()

    def take(self) -> None:
        """Take the id, however long that takes; `changed` is called at each attempt's end."""
        self._begin()

    def ask(self) -> None:
        """Take it in the background, while others are used."""
        self.state = "asked"
        self._begin()

    def lose(self) -> None:
        """Likewise after a transaction that hangs; the id is given up where it cannot be had soon."""
        self._give_up.after(_GIVE_UP_SECONDS)
        self.ask()

    def _begin(self) -> None:
        self._asked += 1
        self._again.cancel()
        self._transactions.begin(partial(self._taken, self._asked))

    def _taken(self, asked: int, failure: KafkaFailure | None) -> None:
        # Only what was asked for last says that no other has the id.
        if asked != self._asked:
            return
        self.trouble = "" if failure is None else str(failure)
        if failure is None:
            self._give_up.cancel()
            self.state = "free"
        else:
            self._again.after(_AGAIN_SECONDS)
        self._changed()

    def write(self, records: Sequence[OutgoingRecord], done: Written, alone: str) -> None:
        """Write a transaction; `state` is the caller's to set."""
        self._transactions.write(records, done, alone=alone)

    def close(self) -> None:
        """End. Its last transaction is aborted by what is asked for already, or by Kafka after its timeout."""
        self.state = "closed"
        self._asked += 1
        self._again.cancel()
        self._give_up.cancel()
        self._transactions.close()


class TransactionLanes:
    """Those of one partition.

    Args:
        made: Makes what writes under the id of a number.
        text: Of the former owner's (`text`).
        scheduler: For attempts again.
        changed: Called when one may be free, or is new.
    """

    def __init__(
        self, made: Callable[[int], KafkaTransactions], text: str, scheduler: Scheduler, changed: Callable[[], None]
    ) -> None:
        self._made = made
        self._scheduler = scheduler
        self._changed = changed
        found = [whole_number(each) for each in text.split()]
        numbers = [each for each in found if each is not None] or list(range(LANES))
        self._next = max(numbers) + 1
        self._lanes = [self._lane(number) for number in numbers]
        self._main = self._lanes[0]

    def _lane(self, number: int) -> TransactionLane:
        return TransactionLane(number, self._made(number), self._scheduler, self._changed, self._give_up)

    @property
    def text(self) -> str:
        """Their numbers, for the next owner."""
        return " ".join(str(each.number) for each in self._lanes)

    @property
    def is_taken(self) -> bool:
        """Whether no id may be another's."""
        return all(each.state != "taking" for each in self._lanes)

    @property
    def has_new(self) -> bool:
        """Whether there is one whose number is not known to be in the text that the next owner reads."""
        return any(each.state == "new" for each in self._lanes)

    @property
    def trouble(self) -> str:
        """Why one cannot be taken over."""
        return next((each.trouble for each in self._lanes if each.state == "taking" and each.trouble), "")

    def doubt(self) -> None:
        """Have all ids taken, so that none is another owner's."""
        for each in self._lanes:
            if each.state != "new":
                each.doubt()

    def take(self) -> None:
        """Take those that are in doubt."""
        for each in self._lanes:
            if each.state == "taking":
                each.take()

    def give_up_taking(self) -> None:
        """Go on without those that cannot be had: nothing more is committed by them."""
        for each in self._lanes:
            if each.state == "taking":
                self._replace(each)

    def begin_new(self) -> None:
        """The text is known to the group: what is new may be used."""
        for each in self._lanes:
            if each.state == "new":
                each.ask()

    def main(self) -> TransactionLane | None:
        """Return the lane of healthy targets; None: it is not free."""
        if self._main.state not in ("free", "writing"):
            self._main = next((each for each in self._lanes if each.state == "free"), self._main)
        return self._main if self._main.state == "free" else None

    def spare(self) -> TransactionLane | None:
        """Return one for a target that is tried alone; None: one is left at most, for when the first is lost."""
        self.main()
        free = [each for each in self._lanes if each is not self._main and each.state == "free"]
        return free[-1] if len(free) > 1 else None

    def close(self) -> None:
        """End."""
        for each in self._lanes:
            each.close()

    def _give_up(self, lane: TransactionLane) -> None:
        self._replace(lane)
        self._changed()

    def _replace(self, lane: TransactionLane) -> None:
        lane.close()
        new = self._lane(self._next)
        new.state = "new"
        self._next += 1
        self._lanes[self._lanes.index(lane)] = new
