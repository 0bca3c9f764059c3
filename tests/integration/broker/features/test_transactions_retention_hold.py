"""Halves in log files that go, halves that cannot be read, clocks that step, a disk that is full."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator
from random import Random

import pytest

from broker.errors import DiskFull
from broker.log.put import Put
from broker.query import KeyQuery, at_offset
from broker.retention import RetentionLimits
from broker.runtime.steps import run_now
from broker.transaction import metrics as counted
from broker.transaction.names import HALF_TOPIC, OP_TOPIC, State
from broker.transaction.outcomes import End
from broker.transaction.retention_hold import TransactionHold
from broker.transaction.settings import CheckSettings
from tests.integration.store_tools import ROOT
from tests.integration.transaction_tools import GROUP, Broker, broker


def let_files_go(made: Broker) -> None:
    """Fill four log files, keep two."""
    made.store.retention.holds[:] = [TransactionHold(made.transactions, made.metrics)]
    made.store.retention.limits = RetentionLimits(log_bytes=2 * 4096)
    for _ in range(8):
        made.store.put("filling", b"y" * 1500)
    made.clock.advance(11)
    made.store.checkpoint()
    for _ in range(20):
        if not made.store.retention.step():
            break
    made.store.retention.limits = RetentionLimits()


def test_undecided_half_is_put_again_and_its_handle_stays_valid() -> None:
    """Moved twice, over a kill: count and age go on, the first handle commits, and does so once."""
    made = broker()
    handle = made.half(b"x", block=b"KEYS\x01k\x02")
    made.scheduler.advance(7)
    assert made.transactions.fetch_checks(GROUP, 1)[0].times == 1
    let_files_go(made)
    assert made.store.min_offset > 0
    half = at_offset(made.store, HALF_TOPIC, 0, 1)
    assert (half.flag, half.properties["TRANSACTION_CHECK_TIMES"], half.properties["KEYS"]) == (7, "1", "k")
    assert at_offset(made.store, OP_TOPIC, 0, 0).properties["__PYDDMQ_DECISIONS"] == "m"
    # The producer that has the check keeps it.
    made.scheduler.advance(7)
    assert made.transactions.fetch_checks(GROUP, 1) == []
    made.scheduler.advance(30)
    assert made.transactions.fetch_checks(GROUP, 1)[0].times == 2
    made = made.again()
    let_files_go(made)
    assert (made.undecided, made.metrics.value(counted.PUT_BACK)) == (1, 1)
    assert made.commit(handle).end is End.OK
    assert made.visible() == [b"x"]
    made = made.again()
    outcome = made.roll_back(handle)
    assert (outcome.end, outcome.decided) == (End.ALREADY_OTHER, State.COMMIT)


def test_nothing_is_kept_of_a_half_that_was_put_again_and_is_decided() -> None:
    """Its producer had a check of it, and answered before the copy came into line."""
    made = broker()
    made.half(b"x")
    made.scheduler.advance(7)
    [check] = made.transactions.fetch_checks(GROUP, 1)
    let_files_go(made)
    assert made.transactions.halves.checks.leases
    assert made.end(check.handle, State.COMMIT, from_check=True).end is End.OK
    made.scheduler.advance(60)
    assert (made.undecided, made.transactions.halves.checks.leases) == (0, {})


def test_half_that_was_put_again_outlives_a_power_loss() -> None:
    """Under `flush: async`, too: it is durable before the file with its first record goes."""
    made = broker(flush="async")
    handle = made.half(b"x")
    let_files_go(made)
    assert made.store.min_offset > 0
    made.disk.crash(Random(1), modes=("none",))
    made = broker(made.disk, made.clock, flush="async")
    assert (made.undecided, made.commit(handle).end) == (1, End.OK)


@pytest.mark.parametrize("state", [State.COMMIT, State.ROLLBACK])
def test_decision_in_the_turn_of_a_start_counts(state: State) -> None:
    """A half that was put again is found by its first handle before the checks have looked at any half."""
    made = broker()
    handle = made.half(b"x")
    let_files_go(made)
    made = made.again(started=False)
    assert made.end(handle, state).end is End.OK
    assert made.visible() == ([b"x"] if state is State.COMMIT else [])
    assert made.end(handle, state).end is End.ALREADY_SAME


@pytest.mark.parametrize("error", [OSError(errno.EIO, "the disk"), None])
def test_search_without_a_result_may_be_tried_again(error: OSError | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fails while the half is searched for, or a part of the log cannot be searched: both may end."""
    made = broker()
    handle = made.half(b"x")
    let_files_go(made)
    made = made.again(started=False)

    def steps(query: KeyQuery) -> Iterator[None]:
        yield
        query.unsearched.append((0, 1))
        if error is not None:
            raise error

    with monkeypatch.context() as patched:
        patched.setattr(KeyQuery, "steps", steps)
        assert made.commit(handle).end is End.SEARCH_FAILED
    assert made.commit(handle).end is End.OK


def test_age_goes_on_when_a_half_is_put_again() -> None:
    """Its file goes after forty minutes; twenty minutes later it is discarded."""
    made = broker(checks=CheckSettings(age_seconds_max=3600.0))
    made.half(b"x")
    made.scheduler.advance(2400)
    let_files_go(made)
    made.scheduler.advance(1100)
    assert made.undecided == 1
    made.scheduler.advance(200)
    assert made.undecided == 0


def test_damaged_half_delays_no_other() -> None:
    """It is lost, counted, and the next one is checked at its time and committed."""
    made = broker()
    made.half(b"poison")
    other = made.half(b"x")
    made.close()
    made.disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", 90)
    made = broker(made.disk, made.clock)
    made.scheduler.advance(7)
    assert [check.body for check in made.transactions.fetch_checks(GROUP, 9)] == [b"x"]
    assert made.metrics.value(counted.LOST) == 1
    assert made.commit(other).end is End.OK
    assert made.undecided == 0


def test_wall_clock_that_steps_changes_no_check() -> None:
    """Set back by a day or forward by a year: six seconds are six seconds, and seven days of uptime are that."""
    made = broker(checks=CheckSettings(age_seconds_max=86_400.0))
    for step_ms in (-86_400_000, 365 * 86_400_000):
        made.half(b"x")
        made.clock.set_wall_ms(made.clock.wall_ms() + step_ms)
        made.half(b"y")
        made.scheduler.advance(5.9)
        assert made.transactions.fetch_checks(GROUP, 9) == []
        made.scheduler.advance(0.2)
        assert len(made.transactions.fetch_checks(GROUP, 9)) == 2
    assert made.undecided == 4


def test_producers_clock_has_no_say() -> None:
    """Born in the future or long ago: checked after six seconds here."""
    made = broker()
    for born_ms in (0, made.clock.wall_ms() + 10_000_000):
        put = made.transactions.half(Put(made.store.topics["t"], 0, b"x", b""), group=GROUP)
        made.store.append([put], born_ms=born_ms, born_host=made.store.options.store_host)
        made.store.flush()
    made.scheduler.advance(5.9)
    assert made.transactions.fetch_checks(GROUP, 9) == []
    made.scheduler.advance(0.2)
    assert len(made.transactions.fetch_checks(GROUP, 9)) == 2


def test_full_disk_decides_nothing_and_forgets_nothing() -> None:
    """A commit is refused while there is no room, and taken once there is; op records have the space set aside."""
    made = broker()
    first, second = made.half(b"1"), made.half(b"2")
    made.disk.capacity_bytes = 0
    with contextlib.suppress(DiskFull):
        while True:
            made.store.put("filling", b"y" * 100)
    with contextlib.suppress(DiskFull):
        while True:
            made.store.put("t", b"")
    assert made.commit(first).end is End.DISK_FULL
    assert made.roll_back(second).end is End.OK
    assert made.undecided == 1
    made.disk.capacity_bytes = None
    assert made.commit(first).end is End.OK
    assert [body for body in made.visible() if body] == [b"1"]


def test_lists_and_search_tell_where_a_transaction_stands() -> None:
    """Undecided ones by topic and group, the oldest first; one by its id, also after its end."""
    made = broker(segment_bytes=65536)
    handles = [made.half(b"%d" % number, group="ab"[number % 2]) for number in range(6)]
    made.commit(handles[0], group="a")
    page = run_now(made.transactions.pending(group="a", count_max=1))
    assert [view.handle for view in page.found] == [handles[2]]
    assert page.cursor is not None
    assert [view.handle for view in run_now(made.transactions.pending(group="a", cursor=page.cursor)).found] == [
        handles[4]
    ]
    assert run_now(made.transactions.pending(topic="other")).found == []
    assert run_now(made.transactions.discarded()).found == []
    [view] = run_now(made.transactions.finding(handles[0].split("-", 2)[2]))
    assert (view.state, view.offset, view.group, view.checks) == ("committed", 0, "a", 0)
    made.transactions.measure()
    assert made.metrics.value(counted.PENDING, "t") == 5
    assert made.metrics.value(counted.UNDECIDED) == 5
