"""Listing what is pending in the timers: in order, by topic and due time, page by page, the refused too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.scheduled.timer import listing
from broker.scheduled.timer.listing import KeptScan, TimerListing, timer_status
from broker.scheduled.timer.stages import TimerPipelineStage
from broker.views import TimerView, TopicTimers
from tests.integration.store_tools import ROOT
from tests.integration.timer_tools import START_MS, TOPIC, Broker, broker


def listed(node: Broker, **options: object) -> list[TimerView]:
    """All pages of a listing."""
    found: list[TimerView] = []
    asked = {"limit": 100, **options}
    while True:
        page = TimerListing(node.timers, **asked)  # type: ignore[arg-type]
        for _ in page.steps():
            pass
        found += page.found
        if page.after is None:
            return found
        asked["after"] = page.after


@contextmanager
def small_timer_logs(units_max: int) -> Iterator[None]:
    """Have a timer log of more units than this be a large one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "UNITS_MAX", units_max)
        yield


def dues(found: list[TimerView]) -> list[int]:
    """Due times, ms after the start."""
    return [each.due_ms - START_MS for each in found]


def test_pending_timers_are_listed_by_due_time() -> None:
    """With topic, id, key and times; those that are rolled for days are in their place."""
    node = broker()
    node.store.create_topic("other", 2)
    late = node.send(b"late", 3_000, key="k")
    node.send(b"far", 9 * 86_400_000, topic="other")
    node.send(b"soon", 1_500)
    node.scheduler.run_until_idle()
    found = listed(node)
    assert dues(found) == [1_500, 3_000, 9 * 86_400_000]
    assert [each.topic for each in found] == [TOPIC, TOPIC, "other"]
    assert (found[1].id, found[1].key, found[1].stored_ms) == (late, "k", START_MS)
    assert found[0].refused_because is None


def test_listing_is_narrowed_by_topic_and_time() -> None:
    """From inclusive, to exclusive."""
    node = broker()
    node.store.create_topic("other", 1)
    for number in range(6):
        node.send(b"x", 1_000 * (number + 1), topic="other" if number % 2 else TOPIC)
    node.scheduler.run_until_idle()
    assert dues(listed(node, topic="other")) == [2_000, 4_000, 6_000]
    assert dues(listed(node, begin_ms=START_MS + 2_000, end_ms=START_MS + 5_000)) == [2_000, 3_000, 4_000]
    assert listed(node, topic="nowhere") == []


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.integers(1, 300_000), max_size=60),
    st.integers(1, 20),
    st.booleans(),
    st.sampled_from([0, 4, 1_000]),
    st.integers(0, 200),
)
def test_pages_hold_each_timer_once(delays: list[int], limit: int, keep: bool, by_slots: int, seconds: int) -> None:
    """However long a page is, however many are due together, and whether pages leave something to the next ones.

    They are found by slots, in the whole timer log, or in it after too many were read by slots.
    """
    node = broker()
    with small_timer_logs(by_slots):
        for delay in delays:
            node.send(b"x", delay)
        node.scheduler.run_until_idle()
        node.timers.pause(TimerPipelineStage.DEQUEUE_PUT_MESSAGE)
        node.scheduler.advance(seconds)
        # What is late now stands in a slot behind its own.
        node.send(b"x", 1)
        node.scheduler.run_until_idle()
        expected = sorted([*delays, 1_000 * seconds + 1])
        found = listed(node, limit=limit, kept=KeptScan() if keep else None)
        assert dues(found) == expected
        assert len({each.physical for each in found}) == len(expected)
        assert dues(listed(node, limit=limit, end_ms=found[0].due_ms + 1)) == [
            each for each in expected if each == expected[0]
        ]


def test_first_page_does_not_read_the_timer_log() -> None:
    """It is found by the slots of what it lists, whatever waits behind them."""
    node = broker()
    for number in range(200):
        node.send(b"x", 1_000 * (1 + number % 100))
    node.scheduler.run_until_idle()
    with small_timer_logs(100):
        log = node.timers.table.log
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(log, "runs", lambda *_: pytest.fail("the timer log was read from end to end"))
            first = TimerListing(node.timers, limit=2)
            for _ in first.steps():
                pass
            assert dues(first.found) == [1_000, 1_000]
            patch.undo()
            # More than is read by slots: the whole log tells.
            assert dues(listed(node, begin_ms=START_MS + 99_000)) == [99_000, 99_000, 100_000, 100_000]


def test_later_pages_do_not_read_the_timer_log_again() -> None:
    """The first reading serves the pages that follow; what was cancelled meanwhile is in none of them."""
    node = broker()
    ids = [node.send(b"x", 1_000 * (1 + number)) for number in range(120)]
    node.scheduler.run_until_idle()
    kept = KeptScan()
    first = TimerListing(node.timers, limit=10, kept=kept)
    units = len(list(first.steps()))
    node.timers.cancel(TOPIC, ids[12])
    node.timers.cancel(TOPIC, ids[20])
    node.scheduler.run_until_idle()
    second = TimerListing(node.timers, limit=10, kept=kept, after=first.after)
    assert len(list(second.steps())) < units
    assert [each.id for each in second.found] == [*ids[10:12], *ids[13:20], ids[21]]
    # Another question, and the first page, are answered anew.
    new = node.send(b"x", 500)
    node.scheduler.run_until_idle()
    assert listed(node, limit=50, kept=kept)[0].id == new
    assert dues(listed(node, limit=50, kept=kept, begin_ms=START_MS + 119_000)) == [119_000, 120_000]


def test_kept_pages_end_with_a_timer_log_that_was_made_anew() -> None:
    """A page that goes on then reads the new one."""
    node = broker()
    for number in range(40):
        node.send(b"x", 60_000 + 1_000 * number)
    node.scheduler.run_until_idle()
    kept = KeptScan()
    first = TimerListing(node.timers, limit=10, kept=kept)
    for _ in first.steps():
        pass
    node = node.again(stop=lambda disk: disk.remove(f"{ROOT}/timerwheel"))
    rest = listed(node, limit=100, kept=kept, after=first.after)
    assert dues(rest) == [60_000 + 1_000 * number for number in range(10, 40)]


def test_delivered_ones_are_not_listed() -> None:
    """Nor after a restart; and those of slots that were read already are."""
    node = broker()
    for delay in (500, 1_200, 1_900, 60_000):
        node.send(b"x", delay)
    node.scheduler.run_until_idle()
    node.scheduler.advance(1.25)
    assert node.times() == [500, 1_200]
    assert dues(listed(node)) == [1_900, 60_000]
    node = node.again()
    assert dues(listed(node)) == [1_900, 60_000]


def test_refused_ones_say_why() -> None:
    """A timer whose topic is gone is listed with the reason, until it is delivered."""
    node = broker()
    node.store.create_topic("gone", 1)
    node.send(b"x", 1_000, topic="gone")
    node.scheduler.run_until_idle()
    node.store.topic_changes.delete("gone")
    node.scheduler.advance(2.0)
    [refused] = listed(node)
    assert (refused.topic, refused.tries) == ("gone", 1)
    assert "create it" in (refused.refused_because or "")
    assert timer_status(node.timers).refused == 1


def test_status_tells_of_all_timers() -> None:
    """Counts by topic, the next due time, and the stages."""
    node = broker()
    assert timer_status(node.timers).topics == []
    node.store.create_topic("other", 1)
    for delay in (1_000, 50_000):
        node.send(b"x", delay)
    node.send(b"x", 70_000, topic="other")
    node.scheduler.run_until_idle()
    node.timers.pause(TimerPipelineStage.DEQUEUE_GET)
    status = timer_status(node.timers)
    assert (status.pending_total, status.entering, status.next_due_ms) == (3, 0, START_MS + 1_000)
    assert status.topics == [TopicTimers(topic=TOPIC, pending=2), TopicTimers(topic="other", pending=1)]
    assert [each.stage for each in status.stages if each.paused] == ["dequeue_get"]
    assert [each.count for each in status.stages][:2] == [3, 3]
