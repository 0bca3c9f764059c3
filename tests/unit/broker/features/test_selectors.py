"""Queue selectors: Java's hash of the argument, chance, and the caller's own."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as some

from broker.features import ALL
from broker.format.java import queue_of_key
from broker.options import StoreOptions
from broker.queues.message_queue import MessageQueue, queue_names
from broker.runtime.metrics import Metrics
from broker.selectors import SelectByRandom, SelectedMessage, java_hash, put_selected, select_by_hash
from broker.store import Store
from pyddmq.testing import ManualClock, SimDisk

QUEUES = queue_names("t", "b", range(4))
MESSAGE = SelectedMessage("t", b"")


@pytest.mark.parametrize(
    ("arg", "value"),
    [
        ("TagA", 2598919),
        ("", 0),
        (None, 0),
        (-7, -7),
        (True, 1231),
        (False, 1237),
        (-(1 << 31), -(1 << 31)),
        (1 << 31, -(1 << 31)),
        (-(1 << 31) - 1, -(1 << 31)),
        ((1 << 63) - 1, -(1 << 31)),
    ],
)
def test_hash_of_an_argument_is_javas(arg: object, value: int) -> None:
    """String, Integer, Long and Boolean hash as Java says; the Longs were computed as (int) (v ^ v >>> 32)."""
    assert java_hash(arg) == value


def test_negative_remainder_counts_without_its_sign() -> None:
    """-7 of four queues is queue 3, where Python's own remainder would give 1 (reference 6.1)."""
    assert select_by_hash(QUEUES, MESSAGE, -7).queue_id == 3


@given(some.text(), some.integers(1, 64))
def test_a_text_goes_where_a_message_key_goes(text: str, count: int) -> None:
    """A program that selects by the key itself agrees with the broker's own choice of a key's queue."""
    assert select_by_hash(queue_names("t", "b", range(count)), MESSAGE, text).queue_id == queue_of_key(text, count)


@pytest.mark.parametrize(("arg", "error"), [(b"x", TypeError), (1.5, TypeError), (1 << 63, OverflowError)])
def test_an_argument_without_a_java_hash_is_refused(arg: object, error: type[Exception]) -> None:
    """What two programs would hash differently chooses no queue."""
    with pytest.raises(error):
        java_hash(arg)


def store() -> Store:
    """Open an empty store with a topic of four queues."""
    made = Store.open(
        "/d",
        options=StoreOptions(segment_bytes=1 << 20),
        features=ALL,
        disk=SimDisk(),
        clock=ManualClock(),
        random=Random(1),
        metrics=Metrics(),
    )
    made.create_topic("t", 4)
    return made


def test_a_selector_gets_queues_message_and_argument_and_is_obeyed() -> None:
    """The message lies in the queue that the callable returned, key or not."""
    seen: list[tuple[int, SelectedMessage, object]] = []

    def second(queues: object, message: SelectedMessage, arg: object) -> MessageQueue:
        assert isinstance(queues, list)
        seen.append((len(queues), message, arg))
        return MessageQueue("t", "broker-0", 2)

    position = put_selected(store(), "t", b"x", selector=second, arg=7, key="k", tags="a")

    assert (position.queue_id, position.offset) == (2, 0)
    assert seen == [(4, SelectedMessage("t", b"x", "k", "a", None), 7)]


def test_a_selector_that_returns_no_queue_of_the_topic_stores_nothing() -> None:
    """Its mistake is told and no message goes astray."""
    broker = store()

    with pytest.raises(ValueError, match="not one of the 4 queues"):
        put_selected(broker, "t", b"x", selector=lambda *_: MessageQueue("t", "broker-0", 4))

    assert broker.end == broker.min_offset


def test_random_selection_reaches_every_queue() -> None:
    """Chance is handed in and covers all queues."""
    select = SelectByRandom(Random(3))

    assert {select(QUEUES, MESSAGE, None) for _ in range(100)} == set(QUEUES)
