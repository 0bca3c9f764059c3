"""The account of what waits in a chaos run finds each thing that is wrong, and nothing in a run that is right."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.scheduled.recurring.occurrence import ONCE, Occurrence
from tests.kafka.chaos_waiting import WaitingAccount
from tests.simulation.halves import COMMIT, ROLLBACK
from tests.simulation.loops import CANCELLED, LoopAccount

UUID = "14f22520-ad72-11e7-91be-6ee54da579e3"
FIRST = Occurrence(1_700_000_000, ONCE, 1_700_172_800, 0, 0, 0, 0, UUID)
DUE_MS = FIRST.at_s * 1000


def run(account: WaitingAccount, *, early_ms: int = 0) -> None:
    """A timer, a delay, and two halves of which one is committed, all as they should be."""
    account.asks_timer("t1", DUE_MS)
    account.stored_timer("t1")
    account.seen("t1", "", DUE_MS - early_ms, (0, 0))
    account.loops[UUID] = LoopAccount(FIRST, added=True)
    account.seen(f"l{UUID}", FIRST.id, DUE_MS - early_ms, (0, 1))
    for name, fate, state in (("h1", "commit", COMMIT), ("h2", "rollback", ROLLBACK)):
        account.halves.fates[name] = fate
        account.halves.stored.add(name)
        account.decided(name, state, 0, account.decides(name, state))
    account.seen("h1", "", DUE_MS, (0, 2))


def test_run_that_is_right_passes() -> None:
    """With what it had."""
    account = WaitingAccount()
    run(account)
    found = account.verdict()
    assert found.passed
    assert (found.timers, found.loops, found.occurrences, found.halves, found.committed) == (1, 1, 1, 2, 1)
    assert account.left == 0


def _cancel(account: WaitingAccount) -> None:
    account.loops[UUID].cancel_asked = True
    account.cancelled(account.loops[UUID], CANCELLED, DUE_MS - 1_000)


def _never_seen(account: WaitingAccount) -> None:
    account.stored_timer("t2")


@pytest.mark.parametrize(
    ("fault", "where"),
    [
        (_never_seen, "faults"),
        (lambda account: account.seen("t1", "", DUE_MS + 9, (0, 3)), "faults"),
        (lambda account: account.seen("h1", "", DUE_MS + 9, (0, 3)), "faults"),
        (lambda account: account.seen("h2", "", DUE_MS, (0, 3)), "faults"),
        (lambda account: account.seen(f"l{UUID}", FIRST.id, DUE_MS + 9, (0, 3)), "wrong"),
        (_cancel, "wrong"),
    ],
)
def test_what_is_wrong_is_found(fault: Callable[[WaitingAccount], None], where: str) -> None:
    """Lost, twice, a rollback that is visible, and one that comes after its cancel was answered."""
    account = WaitingAccount()
    run(account)
    fault(account)
    assert getattr(account.verdict(), where)


def test_early_one_is_found() -> None:
    """Of a timer and of a delay."""
    account = WaitingAccount()
    run(account, early_ms=5)
    assert len(account.verdict().wrong) == 2
