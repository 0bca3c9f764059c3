"""The transactional ids of an owned partition.

A target that hangs takes an id with it: Kafka ends a transaction only when all its partitions take the end, so the id
cannot be had until the target is well. So an owner has a few: one for batches of healthy targets, and spare ones, by
which targets under suspicion are tried alone. Where the first is lost, a spare one takes its place at once: what was
written by the lost one was not to be committed. A new owner takes all of them, so none is left to a former owner.

    taking -> free -> writing -> free      `take`, a write, its end
    writing -> lost -> free                the transaction hangs or its abort failed; the id is taken in the background
    any -> taking                          `doubt`: nothing is fired before the id is taken
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from broker.runtime.later import Later
from broker.runtime.seams import Scheduler
from upstream.kafka.link import KafkaFailure, KafkaTransactions, OutgoingRecord, Written

LANES = 3
_AGAIN_SECONDS = 1.0


class TransactionLane:
    """One id.

    Attributes:
        state: As the module has it.
        trouble: Why it cannot be had; "": it can, or is being asked for.
    """

    def __init__(self, transactions: KafkaTransactions, scheduler: Scheduler, changed: Callable[[], None]) -> None:
        self.state: Literal["taking", "free", "writing", "lost"] = "taking"
        self.trouble = ""
        self._transactions = transactions
        self._changed = changed
        self._again = Later(scheduler, self._begin)
        self._asked = 0

    def doubt(self) -> None:
        """Another may have the id, or what it wrote last is not known: it is to be taken."""
        self.state = "taking"
        self._asked += 1
        self._again.cancel()

    def take(self) -> None:
        """Take the id, however long that takes; `changed` is called at each attempt's end."""
        self._begin()

    def lose(self) -> None:
        """Take it in the background, while others are used."""
        self.state = "lost"
        self._begin()

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
            self.state = "free"
        else:
            self._again.after(_AGAIN_SECONDS)
        self._changed()

    def write(self, records: Sequence[OutgoingRecord], done: Written, alone: str) -> None:
        """Write a transaction; `state` is the caller's to set."""
        self._transactions.write(records, done, alone=alone)

    def close(self) -> None:
        """End."""
        self._again.cancel()
        self._transactions.close()


class TransactionLanes:
    """Those of one partition.

    Args:
        made: What writes under each id.
        scheduler: For attempts again.
        changed: Called when one may be free.
    """

    def __init__(self, made: Sequence[KafkaTransactions], scheduler: Scheduler, changed: Callable[[], None]) -> None:
        self._lanes = [TransactionLane(each, scheduler, changed) for each in made]
        self._main = self._lanes[0]

    @property
    def is_taken(self) -> bool:
        """Whether no id may be another's."""
        return all(each.state != "taking" for each in self._lanes)

    @property
    def trouble(self) -> str:
        """Why one cannot be taken over."""
        return next((each.trouble for each in self._lanes if each.state == "taking" and each.trouble), "")

    def doubt(self) -> None:
        """Have all ids taken, so that none is another owner's."""
        for each in self._lanes:
            each.doubt()

    def take(self) -> None:
        """Take those that are in doubt."""
        for each in self._lanes:
            if each.state == "taking":
                each.take()

    def main(self) -> TransactionLane | None:
        """Return the lane of healthy targets; None: it is not free."""
        if self._main.state == "lost":
            self._main = next((each for each in self._lanes if each.state == "free"), self._main)
        return self._main if self._main.state == "free" else None

    def spare(self) -> TransactionLane | None:
        """Return one for a target that is tried alone; None: there is none now."""
        self.main()
        return next((each for each in self._lanes if each is not self._main and each.state == "free"), None)

    def close(self) -> None:
        """End."""
        for each in self._lanes:
            each.close()
