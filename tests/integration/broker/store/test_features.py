"""A store is opened with features, and refused without one that it needs; the marks of each are the feature's own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from broker.consumer import broadcasting, retry_counts
from broker.deduplication import deduplication
from broker.errors import FeatureMissing, MessageRefused, StoreUnreadable
from broker.feature import Feature, OpenedFeatures
from broker.feature_marks import MARKS
from broker.features import ALL
from broker.queues.topics import dead_letter_topic, retry_topic
from broker.retry import finished, redrive
from broker.runtime.seams import Disk
from broker.scheduled.delay.cancel import CANCEL_TOPIC
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from broker.scheduled.delay.puts import DelayedPuts, delay_feature
from broker.scheduled.pop_records import REVIVE_PREFIX
from broker.scheduled.recurring.ended_loops import LOOP_FEATURE, Interrupted
from broker.scheduled.timer.names import TIMER_TOPIC
from broker.scheduled.timer.puts import TimedPuts, timer_feature
from broker.transaction.names import DISCARD_TOPIC, HALF_TOPIC, OP_TOPIC
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT, bodies, open_store

Mark = Callable[[Disk], str]
"""Puts into a store what a feature leaves there; returns its name."""


def topic(name: str) -> Mark:
    """A topic."""

    def made(disk: Disk) -> str:
        with_all = open_store(disk)
        with_all.create_topic(name, 1, system=True)
        with_all.close()
        return name

    return made


def file(name: str) -> Mark:
    """A file; what stands in it is nobody's business here."""

    def made(disk: Disk) -> str:
        folder = name.rpartition("/")[0]
        disk.make_folder(f"{ROOT}/{folder}")
        new = disk.open(f"{ROOT}/{name}", create=True)
        new.write(0, [b"{}"])
        new.sync()
        new.close()
        disk.sync_folder(f"{ROOT}/{folder}")
        return name

    return made


def broadcasts(disk: Disk) -> str:
    """The folder of broadcasting consumers."""
    file(f"{broadcasting.FOLDER}/g@c.json")(disk)
    return broadcasting.FOLDER


LEFT: list[tuple[str, Mark]] = [
    ("delay", topic(SCHEDULE_TOPIC)),
    ("delay", topic(CANCEL_TOPIC)),
    ("timer", topic(TIMER_TOPIC)),
    ("loop", file("pyddmq/loops.json")),
    ("transaction", topic(HALF_TOPIC)),
    ("transaction", topic(OP_TOPIC)),
    ("transaction", topic(DISCARD_TOPIC)),
    ("retry", topic(retry_topic("g"))),
    ("retry", topic(dead_letter_topic("g"))),
    ("retry", file(finished.FILE)),
    ("retry", file(redrive.FILE)),
    ("consumer", file(retry_counts.FILE)),
    ("consumer", broadcasts),
    ("deduplication", file(deduplication.FILE)),
    ("pop", topic(f"{REVIVE_PREFIX}cluster")),
]
"""What each feature leaves in a store, by the names that the feature itself uses."""


def without(name: str) -> list[Feature]:
    """All features but one, and but those that need it."""
    left = [each for each in ALL if each.name != name]
    while gone := [each for each in left if not set(each.needs) <= {other.name for other in left}]:
        left = [each for each in left if each not in gone]
    return left


def contents(disk: SimDisk) -> dict[str, bytes]:
    """All files of the store."""
    return {path: bytes(node.content) for path, node in disk._files.items()}


@pytest.mark.parametrize(("name", "mark"), LEFT, ids=lambda each: each if isinstance(each, str) else "")
def test_store_is_refused_without_a_feature_that_it_needs(name: str, mark: Mark) -> None:
    """The sentence says what is there and what to give; not a byte has changed, and with all features it opens."""
    disk = SimDisk()
    open_store(disk).close()
    what = mark(disk)
    before = contents(disk)

    with pytest.raises(FeatureMissing, match="features") as refused:
        open_store(disk, given=without(name))

    assert isinstance(refused.value, StoreUnreadable)
    assert refused.value.missing[what] == name
    assert what in str(refused.value)
    assert name in str(refused.value)
    assert contents(disk) == before
    open_store(disk).close()


@pytest.mark.parametrize("name", [feature.name for feature in ALL])
def test_new_store_needs_no_feature(name: str) -> None:
    """One that has nothing of a feature opens without it."""
    disk = SimDisk()
    open_store(disk).close()

    open_store(disk, given=without(name)).close()


def test_core_alone_stores_and_recovers() -> None:
    """Without any feature messages are stored, killed and found again."""
    disk = SimDisk()
    store = open_store(disk, given=())
    store.create_topic("t", 1)
    store.put("t", b"one")
    store.put("t", b"two")
    store.abandon()

    assert bodies(open_store(disk, given=())) == {0: b"one", 1: b"two"}


def test_topic_that_only_the_log_knows_is_refused_too() -> None:
    """Table and queue folders are gone: recovery meets the topic, and what it would write is not written."""
    disk, clock = SimDisk(), ManualClock(1_600_000_000_000)
    store = open_store(disk, clock=clock)
    store.create_topic("t", 1)
    store.put("t", b"later", delay_level=3)
    store.abandon()
    for path in ("config/topics.json", "config/topics.json.bak", "pyddmq/topics.json"):
        if disk.exists(f"{ROOT}/{path}"):
            disk.remove(f"{ROOT}/{path}")
    assert not disk.list(f"{ROOT}/consumequeue/{SCHEDULE_TOPIC}"), "no checkpoint wrote it yet"

    with pytest.raises(FeatureMissing, match=SCHEDULE_TOPIC):
        open_store(disk, clock=clock, given=without("delay"))

    again = open_store(disk, clock=clock)
    [(_, _, due_ms)] = again.topics[SCHEDULE_TOPIC].queues[2].read(0, 1)
    assert due_ms == clock.wall_ms() + 10_000


def test_topic_of_a_missing_feature_cannot_be_made() -> None:
    """A store that could not be opened again so is not made."""
    disk = SimDisk()
    store = open_store(disk, given=())

    with pytest.raises(FeatureMissing, match=TIMER_TOPIC):
        store.create_topic(TIMER_TOPIC, 1, system=True)

    assert TIMER_TOPIC not in store.topics
    store.close()
    open_store(disk, given=()).close()


@pytest.mark.parametrize("wait", [{"delay_level": 1}, {"delay_ms": 5}, {"deliver_at_ms": 1 << 50}])
def test_message_is_refused_where_nothing_makes_it_wait(wait: dict[str, int]) -> None:
    """It is not delivered at once instead."""
    store = open_store(SimDisk(), given=())
    store.create_topic("t", 1)

    with pytest.raises(MessageRefused, match="feature"):
        store.put("t", b"later", **wait)  # type: ignore[arg-type]

    assert bodies(store) == {}
    for kind in (DelayedPuts, TimedPuts):
        with pytest.raises(LookupError, match=kind.__name__):
            store.waiting(kind)


def test_features_are_given_whole() -> None:
    """One that another needs has to be given, and each once."""
    with pytest.raises(ValueError, match="loop needs the feature timer"):
        OpenedFeatures([LOOP_FEATURE])
    with pytest.raises(ValueError, match="twice"):
        OpenedFeatures([delay_feature(), delay_feature("1s")])
    assert OpenedFeatures([timer_feature(), LOOP_FEATURE]).marks == (LOOP_FEATURE.mark,)


def test_marks_are_those_of_the_features() -> None:
    """The core's table has a row for each, and names their topics and files as they do."""
    disk = SimDisk()
    open_store(disk).close()
    Interrupted(ROOT, disk=disk).note([1])

    assert [marks.feature for marks in MARKS] == [feature.name for feature in ALL]
    assert {topic.name for each in ALL for topic in each.topics} <= {name for marks in MARKS for name in marks.topics}
    with pytest.raises(FeatureMissing, match=r"pyddmq/loops\.json \(feature loop\)"):
        open_store(disk, given=without("loop"))
