"""The ledger of declared writes answers when its file is durable."""

from __future__ import annotations

import errno
from random import Random

import pytest

from broker.deduplication.window import DeduplicationWindow, WindowLimits
from broker.deduplication.writes import FILE, Declaration, WriteLedger, WriteVerdict
from broker.log.put import Put
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.store import Store
from pyddmq.testing import ManualClock, ManualScheduler, SimSyncs
from pyddmq.testing.sim_disk import SimDisk
from tests.integration.keyed_tools import NAME
from tests.integration.store_tools import HOST, open_store


def ledger(disk: SimDisk, store: Store) -> WriteLedger:
    """One over the store."""
    return WriteLedger(store, runtime_of(disk, ManualClock()), DeduplicationWindow(WindowLimits(), Metrics()))


def said(found: WriteLedger, run: str, partition: int, *, ends: bool = False) -> list[WriteVerdict]:
    """Declare a partition, or the end of that many; what was answered so far."""
    answers: list[WriteVerdict] = []
    declaration = Declaration("w", 7, run, partition, 3, "d", ends, NAME)
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


def test_tasks_are_answered_when_the_store_fails_while_the_file_is_written() -> None:
    """Each declares again; the reply is one of a row of replies, which would wait behind it."""
    disk, scheduler = SimDisk(), ManualScheduler(ManualClock())
    store = open_store(disk)
    store.file_writes.syncs = SimSyncs(disk, scheduler, Random(1))
    found = ledger(disk, store)
    answers = [said(found, "one", partition) for partition in range(2)]
    assert answers == [[], []], "the file is not durable yet"
    store.writes.fail("something else", OSError(errno.EIO, "broken"))
    scheduler.advance(60)
    assert answers == [[WriteVerdict.WAITS]] * 2


def test_power_loss_after_the_answer_loses_no_declaration() -> None:
    """What was answered is in the file."""
    disk = SimDisk()
    assert said(ledger(disk, open_store(disk)), "one", 0) == [WriteVerdict.SEND]
    disk.crash(Random(1))
    assert said(ledger(disk, open_store(disk)), "two", 1) == [WriteVerdict.WAITS]


def test_rows_of_a_batch_that_has_ended_are_durable_before_the_answer() -> None:
    """Under `flush: async`, too: a run after a power loss does not send them again."""
    disk = SimDisk()
    store = open_store(disk, flush="async")
    store.create_topic("t", 1)
    found = ledger(disk, store)
    assert said(found, "one", 0) == [WriteVerdict.SEND]
    store.append([Put(store.topics["t"], 0, b"row", b"")], born_ms=1, born_host=HOST)
    store.flush()
    assert said(found, "one", 1, ends=True) == [WriteVerdict.SKIP]
    disk.crash(Random(1), modes=("none",))
    assert open_store(disk, flush="async").topics["t"].queues[0].max_offset == 1


def test_rows_that_cannot_be_made_durable_stop_the_store() -> None:
    """A later sync would succeed without them; the end of their batch is not answered."""
    disk = SimDisk()
    store = open_store(disk, flush="async")
    store.create_topic("t", 1)
    found = ledger(disk, store)
    store.append([Put(store.topics["t"], 0, b"row", b"")], born_ms=1, born_host=HOST)
    store.flush()
    disk.fail("sync", path_part="/commitlog/")
    assert said(found, "one", 0, ends=True) == [WriteVerdict.WAITS]
    assert store.failed is not None
