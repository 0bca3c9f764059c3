"""What a store remembers of numbers: which records count, and what a failed sync leaves."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from broker.deduplication.deduplication import Deduplication
from broker.errors import StoreError
from broker.log.put import LogPosition, Put
from broker.store import Store
from proxy.services.keyed_sends import KeyedSends
from proxy.services.message_rules import Refusal
from proxy.services.send_call import Again
from pyddmq.codes import Repeat
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.keyed_tools import NAME, key, memory
from tests.integration.store_tools import HOST, ROOT, open_store


def append(store: Store, number: int, **more: Any) -> LogPosition:
    """Stage a record with a number."""
    block = b"UNIQ_KEY\x01%b\x02" % key(number)
    put = Put(store.topics["t"], 0, b"%d" % number, block, unique_key=key(number), **more)
    [position] = store.append([put], born_ms=1, born_host=HOST)
    return position


@pytest.mark.parametrize("checkpoint", [True, False])
def test_record_that_takes_the_place_of_another_does_not_count(checkpoint: bool) -> None:
    """A delivery, a commit, a retry, a redrive: the first record is the receipt, whatever copies the log has."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    first = append(store, 0)
    second = append(store, 1)
    append(store, 0, prepared_offset=first.physical or -1)
    append(store, 5, prepared_offset=second.physical)
    store.flush()
    if checkpoint:
        memory(store, disk).close()
    store.close()
    opened = open_store(disk)
    known = memory(opened, disk)
    assert known.judge([key(0)]).places == [first.physical]
    assert known.judge([key(1)]).places == [second.physical]
    assert known.judge([key(5)]).places is None
    assert known.judge([key(2)]).places == ()
    opened.close()


def test_checkpoint_that_says_more_than_the_log_is_not_believed() -> None:
    """As a power loss under `flush: async` may leave it; then the log alone says what is there."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    append(store, 0)
    store.flush()
    known = memory(store, disk)
    store.close()
    raw = disk.open(f"{ROOT}/pyddmq/deduplication")
    before = raw.read(0, raw.size())
    store = open_store(disk)
    known = memory(store, disk)
    judged = known.judge([key(1)])
    known.stored(judged, [append(store, 1).physical])
    store.flush()
    known.close()
    kept = disk.open(f"{ROOT}/pyddmq/deduplication")
    later = kept.read(0, kept.size())
    assert before != later
    store.close()
    other = SimDisk()
    store = open_store(other)
    store.create_topic("t", 1)
    append(store, 0)
    store.flush()
    store.close()
    file = other.open(f"{ROOT}/pyddmq/deduplication", create=True)
    file.write(0, [later])
    store = open_store(other)
    known = memory(store, other)
    assert [known.judge([key(number)]).places for number in (0, 1)] == [[0], ()]
    file = other.open(f"{ROOT}/pyddmq/deduplication")
    assert file.read(0, file.size()) != later, "it is rewritten before anything is appended"
    store.close()


@pytest.mark.parametrize("seed", range(12))
def test_checkpoint_names_nothing_that_a_power_loss_can_take(seed: int) -> None:
    """Under `flush: async`, where a hole may be in front of records that stayed: what it took is stored again."""
    disk = SimDisk()
    store = open_store(disk, flush="async")
    store.create_topic("t", 1)
    known = memory(store, disk)
    for number in range(6):
        known.stored(known.judge([key(number)]), [append(store, number).physical])
        store.flush()
    known.begin_writing()
    disk.crash(Random(seed))
    store = open_store(disk, flush="async")
    known = memory(store, disk)
    for number in range(6):
        places = known.judge([key(number)]).places
        assert not places or known.record_of(key(number), places[0]), "it is stored, or can be stored again"
    store.close()


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_checkpoint_waits_for_no_log_that_cannot_be_made_durable(error: int) -> None:
    """A second sync would succeed, and the checkpoint name what is lost: the store has failed."""
    disk = SimDisk()
    store = open_store(disk, flush="async")
    store.create_topic("t", 1)
    known = memory(store, disk)
    known.stored(known.judge([key(0)]), [append(store, 0).physical])
    store.flush()
    disk.fail("sync", error=error, path_part="/commitlog/")
    known.begin_writing()
    assert store.failed is not None


class RepeatedSend:
    """A call whose messages are all known; it notes its answers."""

    def __init__(self, sends: KeyedSends, number: int) -> None:
        self.keys = [key(number)]
        self.judged = sends.judge(self.keys)
        self.slot = self
        self.answers: list[bytes] = []
        self._sends = sends

    def wait(self) -> None:
        """Its frame is short."""

    def answer(self, frame: bytes) -> None:
        """Note it."""
        self.answers.append(frame)

    def ask(self) -> None:
        """Have it answered."""
        self._sends.answer(self)  # type: ignore[arg-type]

    def repeated(self, error: StoreError | None) -> None:
        """Go on after the flush."""
        self._sends.repeated(self, error)  # type: ignore[arg-type]

    def stored_again(self, again: Sequence[Again], repeat: Repeat) -> bytes:
        """Encode what is known."""
        entry = again[0].entry
        return b"stored %d at %d" % (repeat, entry.queue_offset if entry else -1)

    def refuse(self, refusal: Refusal) -> None:
        """Answer as the port does, and count nothing."""
        self.answer(b"refused %d" % refusal.code)


def first_under_way(disk: SimDisk) -> tuple[Store, KeyedSends]:
    """A store to which a first numbered message was appended without a flush, and what answers a repeat of it."""
    store = open_store(disk)
    store.create_topic("t", 1)
    known = memory(store, disk)
    sends = KeyedSends(known, store=store, qid_prefix="q_", broker_name="b")
    known.stored(sends.judge([key(0)]), [append(store, 0).physical])
    return store, sends


def test_repeat_of_what_a_failed_sync_left_undecided_is_refused_as_that_is() -> None:
    """One that waits for the sync, and one that comes after it; nobody is told that the message is stored."""
    disk = SimDisk()
    store, sends = first_under_way(disk)
    first, second = RepeatedSend(sends, 0), RepeatedSend(sends, 0)
    first.ask()
    assert first.answers == []
    disk.fail("sync", path_part="/commitlog/")
    store.flush()
    second.ask()
    assert [first.answers, second.answers] == [[b"refused 10"], [b"refused 10"]]
    store.abandon()


def test_repeat_of_what_is_not_durable_yet_is_answered_when_it_is() -> None:
    """Not before the flush, and in it."""
    disk = SimDisk()
    store, sends = first_under_way(disk)
    send = RepeatedSend(sends, 0)
    send.ask()
    assert send.answers == []
    store.flush()
    assert send.answers == [b"stored 1 at 0"]
    store.close()


HOUR_MS = 3_600_000
OTHER = b"FE00000000FF00000001"
SECOND = 1.0


def known_and_clock(clock: ManualClock) -> tuple[SimDisk, Store, Deduplication]:
    """A store with one numbered message of NAME, and what is remembered of it."""
    disk = SimDisk()
    store = open_store(disk, clock=clock)
    store.create_topic("t", 1)
    known = memory(store, disk, clock=clock)
    send(store, known, 0)
    return disk, store, known


def send(store: Store, known: Deduplication, number: int, name: bytes = NAME) -> None:
    """Store a message with a number, as a send does."""
    judged = known.judge([key(number, name)])
    block = b"UNIQ_KEY\x01%b\x02" % key(number, name)
    put = Put(store.topics["t"], 0, b"x", block, unique_key=key(number, name))
    known.stored(judged, [position.physical for position in store.append([put], born_ms=1, born_host=HOST)])
    store.flush()


def let_live(clock: ManualClock, known: Deduplication, seconds: int) -> None:
    """Let the node live for so long."""
    for _ in range(seconds // 10):
        clock.advance(10 * SECOND)
        known.tick()


@pytest.mark.parametrize("restarted", ["no", "when set back"])
def test_clock_set_ahead_and_back_silences_nobody(restarted: str) -> None:
    """What others store by it makes nobody silent who sent a second ago, nor does the way back."""
    clock = ManualClock()
    disk, store, known = known_and_clock(clock)
    right_ms = clock.wall_ms()
    clock.set_wall_ms(right_ms + HOUR_MS)
    send(store, known, 0, OTHER)
    let_live(clock, known, 30)
    if restarted == "no":
        assert known.judge([key(0)]).places
        assert known.judge([key(1)]).places == ()
    clock.set_wall_ms(right_ms + 60_000)
    if restarted != "no":
        known.close()
        store.close()
        store = open_store(disk, clock=clock)
        known = memory(store, disk, clock=clock)
    let_live(clock, known, 30)
    assert known.judge([key(0)]).places
    send(store, known, 1)
    assert known.judge([key(1)]).places
    assert known.judge([key(1, OTHER)]).places == ()
    store.close()


def test_who_sends_nothing_while_the_node_lives_is_forgotten() -> None:
    """After deduplicationSec, whether the clock was set ahead meanwhile or the node was down for a day."""
    clock = ManualClock()
    disk, store, known = known_and_clock(clock)
    known.close()
    store.close()
    clock.advance(86_400)
    store = open_store(disk, clock=clock)
    known = memory(store, disk, clock=clock)
    for count in range(65):
        send(store, known, count, OTHER)
        if count == 5:
            clock.set_wall_ms(clock.wall_ms() + HOUR_MS)
        if count < 60:
            assert known.judge([key(1)]).places == ()
        let_live(clock, known, 10)
    assert known.judge([key(1)]).places is None
    assert known.judge([key(65, OTHER)]).places == ()
    store.close()
