"""RocketMQ's properties of delays and timers on a message that a program puts into its store."""

from __future__ import annotations

import pytest

from broker.errors import MessageRefused
from broker.format.wait_properties import Wait, wait_of
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import open_store, properties

NOW = 1_700_000_000_000


@pytest.fixture
def store() -> Store:
    """A store with a topic."""
    made = open_store(SimDisk(), clock=ManualClock(NOW))
    made.create_topic("t", 1)
    return made


@pytest.mark.parametrize(
    ("asked", "due_ms"),
    [
        ({"TIMER_DELAY_SEC": "5"}, NOW + 5_000),
        ({"TIMER_DELAY_MS": "1500"}, NOW + 1_500),
        ({"TIMER_DELIVER_MS": str(NOW + 7)}, NOW + 7),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "2", "TIMER_DELAY_SEC": "3"}, NOW + 3_000),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DELAY_MS": "2", "DELAY": "0"}, NOW + 2),
    ],
)
def test_message_waits_as_its_properties_ask(store: Store, asked: dict[str, str], due_ms: int) -> None:
    """Its record in the timer topic has the moment and none of what asked for it; own properties stay."""
    position = store.put("t", b"x", properties={"own": "1", **asked})
    found = properties(store, position, TIMER_TOPIC)
    assert (found["TIMER_DELIVER_MS"], found["REAL_TOPIC"], found["own"]) == (str(due_ms), "t", "1")
    assert not {"DELAY", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"} & found.keys()
    assert store.topics["t"].queues[0].max_offset == 0


def test_level_wins_over_all_of_them(store: Store) -> None:
    """As HookUtils has it."""
    position = store.put("t", b"x", properties={"DELAY": "3", "TIMER_DELAY_SEC": "5"})
    found = properties(store, position, SCHEDULE_TOPIC)
    assert found["DELAY"] == "3"
    assert "TIMER_DELAY_SEC" not in found


def test_moment_that_is_over_is_now(store: Store) -> None:
    """It goes to its topic at once, without the property."""
    position = store.put("t", b"x", properties={"TIMER_DELIVER_MS": "1"})
    assert "TIMER_DELIVER_MS" not in properties(store, position)


@pytest.mark.parametrize("value", ["", "soon", "1.5", "5s", "٣", "9" * 19, "--1", "-"])
def test_what_is_no_number_is_refused(store: Store, value: str) -> None:
    """With the name; nothing is stored."""
    with pytest.raises(MessageRefused, match=r"TIMER_DELAY_SEC must be an integer"):
        store.put("t", b"x", properties={"TIMER_DELAY_SEC": value})
    assert store.end == 0


def test_negative_delay_and_asking_twice_are_refused(store: Store) -> None:
    """A wait is asked for in one way."""
    with pytest.raises(MessageRefused, match="negative"):
        store.put("t", b"x", properties={"TIMER_DELAY_MS": "-1"})
    with pytest.raises(MessageRefused, match="by argument and by property"):
        store.put("t", b"x", properties={"TIMER_DELAY_MS": "1"}, delay_level=1)
    assert wait_of({"DELAY": "-1", "own": "x"}) == Wait()
