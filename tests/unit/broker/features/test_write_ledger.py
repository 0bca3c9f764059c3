"""The ledger of declared writes answers when its file is durable."""

from __future__ import annotations

import errno
from random import Random

import pytest

from broker.deduplication.window import DeduplicationWindow, WindowLimits
from broker.deduplication.writes import FILE, Declaration, WriteLedger, WriteVerdict
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.store import Store
from pyddmq.testing import ManualClock
from pyddmq.testing.sim_disk import SimDisk
from tests.integration.keyed_tools import NAME
from tests.integration.store_tools import open_store


def ledger(disk: SimDisk, store: Store) -> WriteLedger:
    """One over the store."""
    return WriteLedger(store, runtime_of(disk, ManualClock()), DeduplicationWindow(WindowLimits(), Metrics()))


def said(found: WriteLedger, run: str, partition: int) -> list[WriteVerdict]:
    """Declare a partition; what was answered so far."""
    answers: list[WriteVerdict] = []
    declaration = Declaration("w", 7, run, partition, 3, "d", False, NAME)
    found.declare(declaration, lambda verdict, _: answers.append(verdict))
    return answers


@pytest.mark.parametrize(("operation", "error"), [("sync", errno.EIO), ("write", errno.ENOSPC)])
def test_declaration_that_cannot_be_written_waits_and_is_written_with_the_next(operation: str, error: int) -> None:
    """The task declares again; only then its rows may go."""
    disk = SimDisk()
    store = open_store(disk)
    first = ledger(disk, store)
    disk.fail(operation, error=error, path_part=FILE)
    assert said(first, "one", 0) == [WriteVerdict.WAITS]
    assert said(ledger(disk, store), "two", 1) == [WriteVerdict.SEND], "nothing of it is in the file"
    assert said(first, "one", 0) == [WriteVerdict.SEND]
    assert said(ledger(disk, store), "two", 1) == [WriteVerdict.WAITS], "partition 0 is"


def test_power_loss_after_the_answer_loses_no_declaration() -> None:
    """What was answered is in the file."""
    disk = SimDisk()
    assert said(ledger(disk, open_store(disk)), "one", 0) == [WriteVerdict.SEND]
    disk.crash(Random(1))
    assert said(ledger(disk, open_store(disk)), "two", 1) == [WriteVerdict.WAITS]
