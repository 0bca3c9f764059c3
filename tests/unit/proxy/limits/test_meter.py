"""What one client takes, against its line: rates by buckets that may be in debt, numbers, and how it is told."""

from __future__ import annotations

import tracemalloc

import pytest

from conf.sections.limits import AddressLimits, PrincipalLimits
from proxy.limits.meter import QUIET_SECONDS, Meter, Rates, WaitingTimes
from pyddmq.testing import ManualClock


def line(**limits: float) -> PrincipalLimits:
    """A line about everybody."""
    return PrincipalLimits.model_validate({"principals": ["*"], **limits})


def meter(clock: ManualClock, **limits: float) -> Meter:
    """The meter of `shop`."""
    return Meter("principal", "shop", line(**limits), clock)


def rates(clock: ManualClock, **limits: float) -> Rates:
    """Its rates on a port."""
    return Rates(line(**limits), clock)


def test_requests_of_a_second_come_at_once_and_then_at_the_rate() -> None:
    """The bucket is full at first, and holds one second's worth."""
    clock = ManualClock()
    shop = rates(clock, requests_per_second=10)
    for _ in range(10):
        assert shop.wait(clock.monotonic()) == (0.0, "")
        shop.charge(100)
    wait, limit = shop.wait(clock.monotonic())
    assert (round(wait, 6), limit) == (0.1, "requestsPerSecond")
    clock.advance(0.1)
    assert shop.wait(clock.monotonic()) == (0.0, "")
    clock.advance(60)
    for _ in range(10):
        assert shop.wait(clock.monotonic()) == (0.0, "")
        shop.charge(100)
    assert shop.wait(clock.monotonic())[0] > 0


def test_debt_is_paid_by_what_comes_after_it() -> None:
    """One frame may take more than a second's worth, and the rate is right all the same."""
    clock = ManualClock()
    shop = rates(clock, bytes_in_per_second=1024)
    shop.charge(1024 * 5)
    wait, limit = shop.wait(clock.monotonic())
    assert (round(wait, 2), limit) == (4.0, "bytesInPerSecond")
    shop.sent(1 << 20)
    assert shop.wait(clock.monotonic())[1] == "bytesInPerSecond", "what is not limited is not counted"
    clock.advance(4.01)
    assert shop.wait(clock.monotonic()) == (0.0, "")


def test_longest_wait_is_told() -> None:
    """Of several limits the one that holds longest."""
    clock = ManualClock()
    shop = rates(clock, requests_per_second=2, bytes_in_per_second=1024, bytes_out_per_second=1024)
    shop.charge(2048)
    shop.charge(0)
    shop.sent(1024 * 9)
    wait, limit = shop.wait(clock.monotonic())
    assert (round(wait, 2), limit) == (8.0, "bytesOutPerSecond")


def test_another_line_holds_at_once_and_forgives_nothing() -> None:
    """What is owed is owed at the new rate; a rate that goes holds nobody. Each port has rates of its own."""
    clock = ManualClock()
    shop = meter(clock, requests_per_second=10)
    for _ in range(20):
        shop.rates("consumer").charge(0)
    assert shop.rates("consumer").wait(0.0)[0] == pytest.approx(1.1)
    assert shop.rates("producer").wait(0.0) == (0.0, "")
    shop.configure(line(requests_per_second=100))
    assert shop.rates("consumer").wait(0.0)[0] == pytest.approx(0.11)
    shop.configure(line(connections=1))
    assert shop.rates("consumer").wait(0.0) == (0.0, "")
    assert (shop.connections_max, shop.parked_max, shop.halves_max, shop.pending_max) == (1, None, None, None)


def test_who_and_what_are_told_in_words() -> None:
    """As refusals and pages say it."""
    clock = ManualClock()
    shop = meter(clock, requests_per_second=0.5, connections=2000, pending_timers=1)
    assert shop.said("requestsPerSecond") == "0.5 requests a second"
    assert shop.said("connections") == "2,000 connections"
    assert shop.said("pendingTimers") == "1 pending timed messages"
    assert shop.said("share") == "its share of the free capacity"
    limits = AddressLimits.model_validate({"networks": ["10.0.0.0/8"], "bytes_in_per_second": 1_000_000})
    there = Meter("address", "10.0.0.7", limits, clock)
    assert (shop.who, there.who) == ("shop", "the address 10.0.0.7")
    assert there.said("bytesInPerSecond") == "1,000,000 bytes in a second"
    assert (there.halves_max, there.pending_max) == (None, None)


def test_holding_is_over_after_a_quiet_minute() -> None:
    """Then it is not told any more, and the next time counts from its own beginning."""
    clock = ManualClock()
    shop = meter(clock, requests_per_second=1)
    began_ms = clock.wall_ms()
    shop.note("requestsPerSecond", waited=1)
    clock.advance(QUIET_SECONDS)
    shop.note("requestsPerSecond", refused=2)
    held = shop.held_now()["requestsPerSecond"]
    assert (held.since_ms, held.waited, held.refused) == (began_ms, 1, 2)
    clock.advance(QUIET_SECONDS + 1)
    assert shop.held_now() == {}
    shop.note("requestsPerSecond", waited=1)
    assert shop.held_now()["requestsPerSecond"].refused == 0


def test_pending_messages_count_until_they_are_due_or_cancelled() -> None:
    """Whoever delivers them need not tell."""
    pending = WaitingTimes()
    for due_ms in (300, 100, 200):
        pending.add(due_ms)
    assert (pending.count(99), pending.next_ms()) == (3, 100)
    pending.end(300)
    assert pending.count(99) == 2
    assert (pending.count(100), pending.next_ms()) == (1, 200)
    assert pending.count(300) == 0
    assert pending.next_ms() is None


def test_nothing_is_kept_of_messages_that_were_cancelled() -> None:
    """Who sends reminders for a month ahead and cancels most of them does so for as long as the node runs."""
    pending = WaitingTimes()
    tracemalloc.start()
    try:
        for number in range(50_000):
            pending.add(10**12 + number)
            pending.end(10**12 + number)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 100_000
    assert (pending.count(0), pending.next_ms()) == (0, None)


def test_several_of_one_moment_end_one_by_one() -> None:
    """Loops are due by the second, so many share one."""
    pending = WaitingTimes()
    for due_ms in (1000, 1000, 1000, 500):
        pending.add(due_ms)
    pending.end(1000)
    assert (pending.count(0), pending.next_ms()) == (3, 500)
    assert (pending.count(500), pending.next_ms()) == (2, 1000)
    pending.end(1000)
    assert pending.count(999) == 1
    assert pending.count(1000) == 0


def test_cancel_of_what_was_never_counted_ends_no_other() -> None:
    """Of a message that was stored before the start."""
    pending = WaitingTimes()
    pending.end(1000, "before")
    pending.add(1000, "a")
    pending.add(500)
    pending.end(1000, "before")
    assert (pending.count(0), pending.next_ms()) == (2, 500)
    assert pending.count(1000) == 0


@pytest.mark.parametrize("now_ms", [0, 119_000])
def test_repeated_cancel_ends_no_other_of_the_same_moment(now_ms: int) -> None:
    """Delays are due by the second, so many share one; whether that is in this minute or in another."""
    pending = WaitingTimes()
    pending.count(now_ms)
    for name in ("a", "b", "c", "a"):
        pending.add(120_000 - 1, name)
    assert pending.count(now_ms) == 3
    for _ in range(5):
        pending.end(120_000 - 1, "a")
    assert pending.count(now_ms) == 2
    for name in ("b", "c"):
        pending.end(120_000 - 1, name)
    assert (pending.count(now_ms), pending.next_ms()) == (0, None)
    pending.add(120_000 - 1, "a")
    assert (pending.count(now_ms), pending.next_ms()) == (1, 120_000 - 1)


def test_minutes_that_have_passed_are_forgotten() -> None:
    """Also those that nobody looked at."""
    pending = WaitingTimes()
    for number in range(1000):
        pending.add(number * 7_000, f"n{number}")
        pending.count(number * 100)
    for now_ms in (100_000, 3_000_000, 3_000_001, 6_993_000 - 1):
        assert pending.count(now_ms) == sum(number * 7_000 > now_ms for number in range(1000))
    assert pending.next_ms() == 6_993_000
    assert pending.count(10**9) == 0
