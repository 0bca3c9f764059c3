"""A store's files, read from outside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from broker.errors import StoreUnreadable
from broker.format.record import physical_offset
from broker.runtime.disk import RealDisk
from lag.spark.sources.store_files import StoreFiles
from lag.visible_end import FILE, VisibleEnd
from pyddmq.broker import Put, Store, StoreOptions, open_store
from pyddmq.testing import ManualClock

HOST = b"\x7f\0\0\1\0\0\0\0"


@pytest.fixture
def clock() -> ManualClock:
    """Make a clock that tests move."""
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Store:
    """Open a store with two queues and log files of 64 KiB, filled over several of them."""
    made = open_store(str(tmp_path / "store"), options=StoreOptions(segment_bytes=1 << 16), clock=clock)
    made.create_topic("t", 2)
    fill(made, range(400))
    return made


def fill(store: Store, numbers: range, topic: str = "t") -> None:
    """Append a message for each number, in turn to the queues, eight with one sync."""
    for number in numbers:
        put = Put(store.topics[topic], number % len(store.topics[topic].queues), b"%06d" % number * 50, b"")
        store.append([put], born_ms=1_000, born_host=HOST)
        if number % 8 == 7 or number == numbers[-1]:
            store.flush()


def show(store: Store, clock: ManualClock, end: int) -> None:
    """Set the visible end, as a node does."""
    Path(store.root, FILE).parent.mkdir(exist_ok=True)
    VisibleEnd(RealDisk(), f"{store.root}/{FILE}", clock, 7).set(end)


def place(store: Store, offset: int, queue: int = 0, topic: str = "t") -> int:
    """Position of a record in the log."""
    return next(iter(store.topics[topic].queues[queue].read(offset, 1)))[0]


def offsets(files: StoreFiles, queue: int = 0, first: int = 0, end: int = 1 << 30) -> list[int]:
    """Offsets that are read."""
    low, high = files.range("t", queue)
    first, end = max(first, low), min(end, high)
    return [each.offset for each in files.read("t", queue, first, end, tail=files.tail_of("t", queue, first, end))]


def test_all_of_a_closed_store_is_read(store: Store) -> None:
    """Every message of a queue once, over the ends of log files."""
    store.close()
    files = StoreFiles(store.root)
    found = list(files.read("t", 1, 0, 200))

    assert files.topics() == ["t"]
    assert files.queues("t") == [0, 1]
    assert files.range("t", 0) == files.range("t", 1) == (0, 200)
    assert [each.offset for each in found] == list(range(200))
    assert bytes(found[7].record[found[7].body_at : found[7].body_end]) == b"000015" * 50


def test_live_store_is_read_up_to_its_visible_end(store: Store, clock: ManualClock) -> None:
    """Of a node that runs, nothing beyond what it shows; once nobody has the store, all that is whole."""
    clock.advance(11)
    store.checkpoint()
    cut = place(store, 120)
    show(store, clock, cut)
    files = StoreFiles(store.root)

    assert files.visible_end() == cut
    assert files.range("t", 0) == (0, 120)
    assert offsets(files) == list(range(120))
    store.abandon()
    assert files.visible_end() is None
    assert offsets(StoreFiles(store.root)) == list(range(200))


def test_tail_behind_the_checkpoint_is_read_from_the_log(store: Store, clock: ManualClock) -> None:
    """Up to the visible end, over the end of log files, without a checkpoint, too; never twice."""
    for checkpointed in (False, True):
        if checkpointed:
            clock.advance(11)
            store.checkpoint()
            fill(store, range(400, 600))
        show(store, clock, place(store, 170 if not checkpointed else 290, queue=1))
        files = StoreFiles(store.root)
        wanted = list(range(171 if not checkpointed else 291))
        assert files.range("t", 0) == (0, len(wanted))
        assert files.range("t", 1) == (0, len(wanted) - 1)
        assert offsets(files) == wanted
        assert offsets(files, 1) == wanted[:-1]
        assert offsets(files, first=100, end=150) == list(range(100, 150))
        assert files.offset_at("t", 0, 0) == 0
    units = files.tail_of("t", 0, 195, 205)
    assert units is not None
    assert (units.first, units.end) == (200, 205), "the checkpoint has those below"
    assert files.bytes_between("t", 0, 0, 291) == place(store, 290)


def test_topic_that_only_the_tail_has_is_there_and_a_deleted_one_is_not(store: Store, clock: ManualClock) -> None:
    """Its folder comes with the next checkpoint; the table of topics knows it."""
    clock.advance(11)
    store.checkpoint()
    store.create_topic("new", 3)
    fill(store, range(9), "new")
    store.create_topic("gone", 1)
    fill(store, range(3), "gone")
    show(store, clock, store.end)
    store.topic_changes.delete("gone")
    store.topic_changes.open("opened", 1)
    fill(store, range(3), "opened")
    show(store, clock, store.end)
    files = StoreFiles(store.root)
    assert files.topics() == ["new", "opened", "t"]
    assert files.queues("new") == [0, 1, 2]
    assert files.range("new", 2) == (0, 3)
    assert files.queues("gone") == []


def test_damage_in_the_tail_hides_its_record_alone(store: Store, clock: ManualClock) -> None:
    """A flipped byte: the scan finds the next record behind it, as the node's own start does."""
    show(store, clock, store.end)
    bad = place(store, 20)
    log = sorted(Path(store.root, "commitlog").iterdir())
    data = bytearray(log[0].read_bytes())
    data[bad + 120] ^= 1
    log[0].write_bytes(data)
    assert offsets(StoreFiles(store.root)) == [*range(20), *range(21, 200)]


def test_unit_that_repeats_its_neighbours_gives_nothing(store: Store) -> None:
    """A filler: its record says another offset, so the neighbour's message does not come twice."""
    store.close()
    path = min(Path(store.root, "consumequeue", "t", "0").iterdir())
    data = bytearray(path.read_bytes())
    data[20 * 6 : 20 * 6 + 12] = data[20 * 7 : 20 * 7 + 12]
    path.write_bytes(data)
    assert offsets(StoreFiles(store.root), end=9) == [0, 1, 2, 3, 4, 5, 7, 8]


def test_record_of_another_place_or_topic_gives_nothing_without_sums_too(store: Store) -> None:
    """With `verify=False` its own position, its queue, offset and topic are compared all the same."""
    store.create_topic("u", 1)
    fill(store, range(4), "u")
    foreign = place(store, 3, topic="u")
    own = place(store, 5)
    store.close()
    for path in sorted(Path(store.root, "commitlog").iterdir()):
        base, data = int(path.name), bytearray(path.read_bytes())
        if base <= own < base + len(data):
            data[own - base + 35] ^= 1
            path.write_bytes(data)
    path = min(Path(store.root, "consumequeue", "t", "0").iterdir())
    data = bytearray(path.read_bytes())
    data[20 * 3 : 20 * 3 + 8] = foreign.to_bytes(8, "big")
    path.write_bytes(data)
    found = [each.offset for each in StoreFiles(store.root).read("t", 0, 0, 9, verify=False)]
    assert found == [0, 1, 2, 4, 6, 7, 8]


def test_what_is_not_whole_is_left_out(store: Store) -> None:
    """A flipped byte in the body, in the record's own position and in a unit's size."""
    places = {offset: next(iter(store.topics["t"].queues[0].read(offset, 1)))[0] for offset in (3, 5)}
    store.close()
    log = min(Path(store.root, "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[places[3] + 120] ^= 1
    data[places[5] + 35] ^= 1
    log.write_bytes(data)
    units = min(Path(store.root, "consumequeue", "t", "0").iterdir())
    data = bytearray(units.read_bytes())
    data[20 * 8 + 11] ^= 1
    units.write_bytes(data)

    assert offsets(StoreFiles(store.root), end=12) == [0, 1, 2, 4, 6, 7, 9, 10, 11]


def test_first_offset_is_behind_what_retention_took(store: Store) -> None:
    """Units whose log file is gone are no messages any more."""
    store.close()
    first, second, *_ = sorted(Path(store.root, "commitlog").iterdir())
    first.unlink()
    files = StoreFiles(store.root)
    low, high = files.range("t", 0)

    assert 0 < low < high == 200
    assert physical_offset(next(files.read("t", 0, low, high)).record) >= int(second.name)
    assert offsets(files) == list(range(low, 200))


def test_moments_are_found_by_halving(store: Store) -> None:
    """The first at or after a moment; the end when all are older."""
    store.close()
    files = StoreFiles(store.root)
    last = files.stored_ms("t", 0, 199, 200)
    assert last is not None
    assert files.offset_at("t", 0, 0) == 0
    assert files.offset_at("t", 0, last + 1) == 200
    assert files.stored_ms("t", 0, files.offset_at("t", 0, last), 200) == last


def test_damage_where_the_search_looks_hides_no_other_message(store: Store, clock: ManualClock) -> None:
    """A moment is that of the next message that can be read."""
    for number in range(400, 600, 20):
        clock.advance(60)
        fill(store, range(number, number + 20))
    damaged = {offset: place(store, offset) for offset in (150, 225, 249, 262, 299)}
    store.close()
    files = StoreFiles(store.root)
    moments = {each.offset: each.stored_ms for each in files.read("t", 0, *files.range("t", 0))}
    assert len(moments) == 300
    for at in damaged.values():
        with open(f"{store.root}/commitlog/{at // (1 << 16) * (1 << 16):020d}", "r+b") as file:
            file.seek(at % (1 << 16) + 100)
            file.write(b"?")
    files = StoreFiles(store.root)
    for moment in sorted({*moments.values()}):
        first = files.offset_at("t", 0, moment)
        wrong = {offset for offset, at in moments.items() if (at >= moment) != (offset >= first)}
        assert wrong <= damaged.keys()


@pytest.mark.parametrize("text", ["", "[]", '{"offsetTable":{"t@g":5}}', '{"offsetTable":{"t@g":{"0":"x"}}}'])
def test_positions_that_cannot_be_read_are_told(store: Store, text: str) -> None:
    """Never a backlog that begins at 0 because a file is damaged."""
    store.close()
    path = Path(store.root, "config", "consumerOffset.json")
    path.write_text(text)
    with pytest.raises(StoreUnreadable, match="has no readable offsets of groups"):
        StoreFiles(store.root).committed("g")


@pytest.mark.parametrize(("own_ms", "lmq_ms", "winner"), [(2, 1, 7), (1, 2, 9), (1, 1, 7)])
def test_offsets_of_a_rocketmq_with_light_queues_count_where_they_are_newer(
    store: Store, own_ms: int, lmq_ms: int, winner: int
) -> None:
    """RocketMQ keeps all groups in a file of another name then; what only one file has counts, too."""
    store.close()
    for name, written_ms, only, offset in (("consumerOffset", own_ms, "a", 7), ("lmqConsumerOffset", lmq_ms, "b", 9)):
        table = {"both@g": {"0": offset}, f"{only}@g": {"1": offset}}
        content = {"dataVersion": {"timestamp": written_ms}, "offsetTable": table}
        Path(store.root, "config", f"{name}.json").write_text(json.dumps(content))
    assert StoreFiles(store.root).committed("g") == {("both", 0): winner, ("a", 1): 7, ("b", 1): 9}
    Path(store.root, "config", "consumerOffset.json").unlink()
    assert StoreFiles(store.root).committed("g") == {("both", 0): 9, ("b", 1): 9}


def test_folder_without_a_log_is_no_store(tmp_path: Path) -> None:
    """Nor is a name with a slash a topic."""
    with pytest.raises(StoreUnreadable, match="it has no folder commitlog"):
        StoreFiles(str(tmp_path))
