"""What is saved of transactions, and when: never ahead of the log, whatever happens between two steps."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from broker.log.put import Put
from broker.runtime.file_writes import AT_ONCE, TURN
from broker.runtime.seams import DiskFile, Reported, Syncing
from broker.transaction.names import State
from pyddmq.testing import PowerCut, SimDisk, SimSyncs
from tests.insides import is_writing_files
from tests.integration.store_tools import HOST
from tests.integration.transaction_tools import GROUP, Broker, broker
from tests.integration.waiting_tools import flush_in_background, let_pass

OPTIONS: dict[str, Any] = {"segment_bytes": 8192}
BODIES = [b"a", b"b", b"c", b"d"]


def decided(disk: SimDisk, *, flush: str) -> Broker:
    """A store that has decided two halves; with `async` what says so has not reached the disk."""
    made = broker(disk, flush=flush, **OPTIONS)
    made.commit(made.half(b"first"))
    made.store.make_durable()
    made.transactions.save(force=True)
    for body in (b"a", b"b"):
        made.commit(made.half(body))
    made.scheduler.run_until_idle()
    return made


def saved_until(disk: SimDisk, made: Broker, changes: int) -> bool:
    """Save beside the loop until the disk stops at a change; whether it was saved whole before."""
    made.store.file_writes.syncs = SimSyncs(disk, made.scheduler, Random(changes))
    disk.stop_after(changes)
    try:
        made.transactions._state_writer.begin()
        let_pass(made.scheduler, lambda: not is_writing_files(made.store))
    except PowerCut:
        return False
    return True


@pytest.mark.parametrize("flush", ["async", "sync"])
def test_log_is_durable_before_what_is_saved_of_it(flush: str) -> None:
    """A power loss at any change of a file write that leaves of each file what was synced, and no more.

    A half that then gets the place of a lost one is a new half: it is asked about, and is not taken for decided.
    """
    changes, whole = 0, False
    while not whole:
        disk = SimDisk()
        made = decided(disk, flush=flush)
        before = made.store.end
        whole = saved_until(disk, made, changes)
        made.leave()
        disk.crash(Random(changes), modes=("none",))
        again = broker(disk, flush=flush, **OPTIONS)
        if flush == "sync":
            assert again.store.end >= before
        lost = {b"a", b"b"} - set(again.visible())
        known = again.undecided
        handles = [again.half(body) for body in BODIES]
        # The next start finds the same files.
        again = again.again(**OPTIONS, flush=flush)
        assert again.undecided == known + len(BODIES), f"{changes}: a new half counts as decided (lost: {lost})"
        for handle, body in zip(handles, BODIES, strict=True):
            assert again.commit(handle).resolved
            assert again.visible()[-1] == body
        changes += 1
    assert changes > 6


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
def test_decision_that_is_not_durable_is_not_saved(state: State) -> None:
    """All is saved while its record is on its way; a power loss takes that, and the half is undecided as before."""
    disk = SimDisk()
    made = broker(disk)
    handle = made.half(b"x")
    flush_in_background(made.store, SimSyncs(disk, made.scheduler, Random(1)), made.scheduler)
    reported: list[object] = []
    made.transactions.end(handle, group=GROUP, state=state, done=reported.append)
    while not made.store.unsettled or made.store.pending:
        made.scheduler.run_turn()
    made.transactions.save(force=True)
    assert reported == []
    made.leave()
    disk.crash(Random(1), modes=("none",))
    again = broker(disk)
    assert (again.undecided, again.visible()) == (1, [])
    assert again.commit(handle).resolved
    assert (again.undecided, again.visible()) == (0, [b"x"])


def test_checks_of_many_halves_are_saved_some_at_a_time() -> None:
    """Every few seconds, while their producers do not decide them; the loop serves others meanwhile."""
    made = broker(segment_bytes=1 << 20)
    count = 3 * AT_ONCE
    put = made.transactions.half(Put(made.store.topics["t"], 0, b"x", b""), group=GROUP)
    for _ in range(count):
        made.store.append([put], born_ms=0, born_host=HOST)
    made.store.flush()
    made.scheduler.advance(7)
    assert len(made.transactions.fetch_checks(GROUP, count)) == count
    turns: list[bool] = []

    class Counting(SimSyncs):
        """Notes what it is to sync."""

        def begin(self, file: DiskFile, done: Reported) -> Syncing:
            turns.append(file is TURN)
            return super().begin(file, done)

    made.store.file_writes.syncs = Counting(made.disk, made.scheduler, Random(1))
    made.scheduler.advance(6)
    # To find them, and to write them.
    assert sum(turns) >= 2 * count // AT_ONCE
    made.close()
    assert made.again(segment_bytes=1 << 20).transactions.times_of(count - 1) == 1
