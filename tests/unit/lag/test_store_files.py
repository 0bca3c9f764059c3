"""A store's files, read from outside."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from broker.runtime.disk import RealDisk
from broker.testing import ManualClock
from lag.spark.sources.store_files import StoreFiles, StoreUnreadable
from lag.visible_end import FILE, VisibleEnd
from pyddmq.broker import Put, Store, StoreOptions, open_store

HOST = b"\x7f\0\0\1\0\0\0\0"


@pytest.fixture
def clock() -> ManualClock:
    """Make a clock that tests move."""
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path, clock: ManualClock) -> Store:
    """Open a store with two queues and log files of 64 KiB, filled over several of them."""
    made = open_store(str(tmp_path / "store"), options=StoreOptions(segment_bytes=1 << 16), clock=clock)
    topic = made.create_topic("t", 2)
    for number in range(400):
        made.append([Put(topic, number % 2, b"%06d" % number * 50, b"")], born_ms=1_000, born_host=HOST)
        made.flush()
    return made


def offsets(files: StoreFiles, queue: int = 0, first: int = 0, end: int = 1 << 30) -> list[int]:
    """Offsets that are read."""
    low, high = files.range("t", queue)
    return [each.offset for each in files.read("t", queue, max(first, low), min(end, high))]


def test_all_of_a_closed_store_is_read(store: Store) -> None:
    """Every message of a queue once, over the ends of log files."""
    store.close()
    files = StoreFiles(store.root)
    found = list(files.read("t", 1, 0, 200))

    assert files.topics() == ["t"]
    assert files.queues("t") == [0, 1]
    assert files.range("t", 0) == files.range("t", 1) == (0, 200)
    assert [each.offset for each in found] == list(range(200))
    assert bytes(found[7].record[slice(*found[7].body)]) == b"000015" * 50


def test_live_store_is_read_up_to_its_visible_end(store: Store, clock: ManualClock) -> None:
    """Of a node that runs, nothing beyond what it shows; once nobody has the store, all that is whole."""
    clock.advance(11)
    store.checkpoint()
    queue = store.topics["t"].queues[0]
    cut = next(iter(queue.read(120, 1)))[0]
    Path(store.root, FILE).parent.mkdir(exist_ok=True)
    shown = VisibleEnd(RealDisk(), f"{store.root}/{FILE}", clock, 7)
    shown.set(cut)
    files = StoreFiles(store.root)

    assert files.visible_end() == cut
    assert files.range("t", 0) == (0, 120)
    assert offsets(files) == list(range(120))
    store.abandon()
    assert files.visible_end() is None
    assert offsets(StoreFiles(store.root)) == list(range(200))


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
    assert next(files.read("t", 0, low, high)).physical >= int(second.name)
    assert offsets(files) == list(range(low, 200))


def test_moments_are_found_by_halving(store: Store) -> None:
    """The first at or after a moment; the end when all are older."""
    store.close()
    files = StoreFiles(store.root)
    last = files.stored_ms("t", 0, 199)
    assert last is not None
    assert files.offset_at("t", 0, 0) == 0
    assert files.offset_at("t", 0, last + 1) == 200
    assert files.stored_ms("t", 0, files.offset_at("t", 0, last)) == last


@pytest.mark.parametrize("text", ["", "[]", '{"offsetTable":{"t@g":5}}', '{"offsetTable":{"t@g":{"0":"x"}}}'])
def test_positions_that_cannot_be_read_are_told(store: Store, text: str) -> None:
    """Never a backlog that begins at 0 because a file is damaged."""
    store.close()
    path = Path(store.root, "config", "consumerOffset.json")
    path.write_text(text)
    with pytest.raises(StoreUnreadable, match="does not say what groups committed"):
        StoreFiles(store.root).committed("g")


def test_folder_without_a_log_is_no_store(tmp_path: Path) -> None:
    """Nor is a name with a slash a topic."""
    with pytest.raises(StoreUnreadable, match="it has no folder commitlog"):
        StoreFiles(str(tmp_path))
