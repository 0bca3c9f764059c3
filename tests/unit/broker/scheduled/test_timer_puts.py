"""Timed messages on their way into the store: RocketMQ's form, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.errors import MessageRefused
from broker.format.message import message_of
from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.scheduled.timer.names import TIMER_TOPIC, TimerOptions, due_of, slot_of
from broker.scheduled.timer.puts import TimedPuts
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import open_store

NOW = 1_700_000_000_000


def store_at(now_ms: int = NOW, **timers: int) -> Store:
    """Open a store of one topic."""
    store = open_store(SimDisk(), clock=ManualClock(now_ms), timers=TimerOptions(**timers))
    store.create_topic("t", 2)
    return store


def test_timed_message_stands_in_the_log_as_rocketmq_writes_it() -> None:
    """Timer topic, queue 0, slot, real topic and queue; the exact due time; no delay that was asked for (D28)."""
    store = store_at()
    position = store.put("t", b"x", tags="TagA", key="k", queue_id=1, delay_ms=5300)
    [(physical, size, code)] = store.topics[TIMER_TOPIC].queues[0].read(0, 1)
    message = message_of(store.read(physical, size))
    unique_key = position.unique_key.decode()
    assert message.properties == {
        "TAGS": "TagA",
        "KEYS": "k",
        "TIMER_DELIVER_MS": str(NOW + 5300),
        "TIMER_OUT_MS": str(NOW + 5000),
        "REAL_TOPIC": "t",
        "REAL_QID": "1",
        "UNIQ_KEY": unique_key,
    }
    assert (code, message.body()) == (2598919, b"x")


@pytest.mark.parametrize(("due", "slot"), [(5000, 4000), (5300, 5000), (5001, 5000), (1, 0)])
def test_slot_is_the_last_multiple_before_the_due_time(due: int, slot: int) -> None:
    """A due time that is a multiple belongs to the slot before (HookUtils)."""
    assert slot_of(due, 1000) == slot


@pytest.mark.parametrize("due", [NOW, NOW - 1, 1])
def test_past_due_is_delivered_at_once(due: int) -> None:
    """The message goes to its own topic as it is."""
    store = store_at()
    store.put("t", b"x", queue_id=0, deliver_at_ms=due)
    assert store.topics["t"].queues[0].max_offset == 1
    assert TIMER_TOPIC not in store.topics


def test_horizon_is_the_last_moment_that_is_taken() -> None:
    """More than a year by default; one ms more is refused with a sentence that names the setting."""
    year_ms = 366 * 86_400_000
    store_at().put("t", b"x", delay_ms=year_ms)
    store = store_at(delay_ms_max=86_400_000)
    store.put("t", b"x", delay_ms=86_400_000)
    with pytest.raises(MessageRefused, match=r"in 1\.0 days; the limit is 1\.0 \(timerMaxDelaySec\)"):
        store.put("t", b"x", delay_ms=86_400_001)
    with pytest.raises(MessageRefused, match="negative"):
        store.put("t", b"x", delay_ms=-1)
    with pytest.raises(MessageRefused, match="the limit is"):
        store.put("t", b"x", delay_ms=1 << 80)


def test_level_wins_over_moment() -> None:
    """Both given: the level is taken, as in RocketMQ."""
    store = store_at()
    store.put("t", b"x", delay_level=1, delay_ms=5000)
    assert TIMER_TOPIC not in store.topics


def test_timer_properties_of_an_earlier_wait_do_not_count() -> None:
    """A message that is sent again with what RocketMQ left in it waits anew."""
    store = store_at()
    block = encode_properties({"TIMER_OUT_MS": "1", "TIMER_DELIVER_MS": "2", "REAL_TOPIC": "u", "own": "1"})
    put = store.waiting(TimedPuts).put(Put(store.topics["t"], 0, b"x", block), NOW + 1500)
    assert put.properties.startswith(b"own\x011\x02TIMER_DELIVER_MS\x01%d\x02" % (NOW + 1500))
    assert due_of(put.properties, 1000) == NOW + 1500


def test_topics_of_the_broker_take_no_timers() -> None:
    """As for delay levels: what clients may not publish to does not come by a detour."""
    store = store_at()
    store.create_topic("rmq_sys_x", 1, system=True)
    with pytest.raises(MessageRefused, match="accepts no timed messages"):
        store.put("rmq_sys_x", b"x", delay_ms=1)


@given(st.integers(0, 300), st.integers(1, 100))
def test_refusals_rise_with_the_slot(count: int, limit: int) -> None:
    """None up to the bound, all from twice the bound on; more the fuller it is, where RocketMQ's refuses less."""
    store = store_at(slot_messages_max=limit)
    store.waiting(TimedPuts).in_slot = lambda _: count
    put = Put(store.topics["t"], 0, b"x", b"")
    refused = 0
    for _ in range(50):
        try:
            store.waiting(TimedPuts).put(put, NOW + 5000)
        except MessageRefused:
            refused += 1
    wanted = max(0.0, min(1.0, (count - limit) / limit))
    assert abs(refused / 50 - wanted) <= (0.4 if 0 < wanted < 1 else 0)


@given(st.integers(1, 1 << 42), st.sampled_from([100, 200, 500, 1000]))
def test_due_time_is_read_back(due: int, precision: int) -> None:
    """What is written is what is read, in the slot that holds it."""
    slot = slot_of(due, precision)
    assert slot < due <= slot + precision
    assert due_of(b"TIMER_DELIVER_MS\x01%d\x02TIMER_OUT_MS\x01%d\x02" % (due, slot), precision) == due


@pytest.mark.parametrize(
    ("block", "due"),
    [
        (b"TIMER_OUT_MS\x015000\x02TIMER_DELIVER_MS\x015300\x02", 5300),
        (b"TIMER_OUT_MS\x015000\x02TIMER_DELIVER_MS\x016000\x02", 6000),
        (b"TIMER_OUT_MS\x015000\x02TIMER_DELIVER_MS\x016001\x02", 6000),
        (b"TIMER_OUT_MS\x015000\x02TIMER_DELIVER_MS\x015000\x02", 6000),
        (b"TIMER_OUT_MS\x015000\x02TIMER_DELAY_MS\x01300\x02TIMER_DELIVER_MS\x015300\x02", 6000),
        (b"TIMER_OUT_MS\x015000\x02TIMER_DELAY_SEC\x011\x02", 6000),
        (b"TIMER_OUT_MS\x01x\x02TIMER_DELIVER_MS\x015300\x02", None),
        (b"TIMER_DELIVER_MS\x015300\x02", None),
    ],
)
def test_foreign_due_times(block: bytes, due: int | None) -> None:
    """RocketMQ's own: exact where that can be known, else the end of the slot, never early (D28)."""
    assert due_of(block, 1000) == due
