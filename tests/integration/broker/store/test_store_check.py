"""`check` finds every kind of damage with file and position, `repair` mends it, a node starts or says what to do."""

from __future__ import annotations

import contextlib
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.errors import StoreError, StoreFormatNewer, StoreInUse, StoreUnreadable
from broker.format.record import check as check_record
from broker.index.file import IndexFile
from broker.index.keys import KeyHasher
from broker.index.rows import Rows
from broker.opening.store_json import FORMAT_VERSION
from broker.query import by_key
from broker.runtime.file_writes import at_once
from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import SealedFile
from broker.runtime.store_metrics import INDEX_REBUILT
from broker.scheduled.timer.pending.log import UNIT as TIMER_UNIT
from broker.tools.check import Severity, StoreCheck
from broker.tools.repair import filling
from pyddmq.testing import ManualClock, PowerCut, SimDisk
from tests.fuzz.image import image_of
from tests.integration.damage import (
    COUNT,
    DAMAGES,
    SEGMENTS,
    Damage,
    check,
    contents,
    lose_snapshot,
    make_data,
    mend,
    open_progress,
    spoil_journal,
    troubles,
    wanted,
)
from tests.integration.store_tools import ROOT, append, bodies, open_store
from upstream.tools.backup import Backup
from upstream.tools.store_check import check_data

EVERY = pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.name.replace(" ", "-"))


@pytest.mark.parametrize("closed", [True, False])
def test_sound_store_has_no_troubles(*, closed: bool) -> None:
    """Closed or killed: nothing is wrong, and nothing was changed by looking."""
    disk = make_data(closed=closed)
    before = disk.operations
    assert troubles(disk) == []
    assert disk.operations == before
    kinds = {finding.kind for finding in check(disk)}
    assert ("not_closed" in kinds) is not closed


def test_live_store_has_no_troubles_and_is_said_to_be_live() -> None:
    """The tail moves; nothing of that is damage."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    store.put("t", b"one")
    assert [finding.kind for finding in check(disk)] == ["live"]
    look = StoreCheck(ROOT, disk, ManualClock())
    list(check_data(look))
    assert (look.tally.records, look.tally.end) == (1, store.end)


def test_tally_counts_what_was_read() -> None:
    """Every record and every unit that the checkpoint covers."""
    disk = make_data()
    look = StoreCheck(ROOT, disk, ManualClock())
    list(check_data(look))
    assert (look.tally.records, look.tally.units, look.tally.fillers) == (105, 105, 0)


@EVERY
def test_damage_is_found_with_its_file(damage: Damage) -> None:
    """Every kind of damage to every kind of file is named."""
    disk = make_data()
    damage.do(disk)
    found = [finding for finding in check(disk) if finding.kind.startswith(damage.kind)]
    assert found, [finding.kind for finding in check(disk)]
    assert found[0].file.startswith(damage.file)
    assert found[0].text
    assert found[0].costs


@EVERY
def test_node_starts_or_names_the_file_and_costs_no_more_than_what_was_hit(damage: Damage) -> None:
    """A start never crashes, hands out nothing wrong, and loses nothing beyond the records that were hit."""
    disk = make_data()
    damage.do(disk)
    if not damage.starts:
        with pytest.raises(StoreError) as refused:
            contents(disk)
        assert damage.file.rpartition("/")[2] in str(refused.value)
        assert "store check" in str(refused.value)
        return
    metrics = Metrics()
    found = contents(disk, metrics)
    assert not damage.metric or metrics.value(damage.metric) > 0
    assert {offset for offset, body in wanted().items() if found.get(offset) != body} <= set(damage.lost)
    assert {found.get(offset) for offset in damage.lost} <= {None, *wanted().values()}


@EVERY
def test_repair_leaves_nothing_to_find(damage: Damage) -> None:
    """After `--repair` the check is clean, a node starts, and only what was hit is gone."""
    disk = make_data()
    damage.do(disk)
    mend(disk)
    assert troubles(disk) == []
    found = contents(disk)
    assert {offset for offset, body in wanted().items() if found.get(offset) != body} <= set(damage.lost)
    assert {found.get(offset) for offset in damage.lost} <= {None, *wanted().values()}
    assert troubles(disk) == []


@EVERY
@settings(max_examples=4, deadline=None)
@given(stops=st.lists(st.integers(0, 60), min_size=1, max_size=3))
def test_repair_may_be_killed_anywhere(damage: Damage, stops: list[int]) -> None:
    """A kill at any change of a repair: the next one finishes the work, and nothing valid is lost."""
    disk = make_data()
    damage.do(disk)
    for changes in stops:
        disk.stop_after(changes)
        with contextlib.suppress(PowerCut):
            mend(disk)
        disk.kill()
    mend(disk)
    assert troubles(disk) == []
    found = contents(disk)
    assert {offset for offset, body in wanted().items() if found.get(offset) != body} <= set(damage.lost)


@settings(max_examples=30, deadline=None)
@given(seed=st.randoms(use_true_random=False))
def test_any_bit_of_any_file_is_found_and_mended(seed: Random) -> None:
    """One flipped bit anywhere: found unless it changes nothing, mended, and at most one message is gone."""
    disk = make_data()
    path = seed.choice(sorted(disk.contents()))
    size = len(disk.contents()[path])
    if not size:
        return
    disk.flip_bit(path, seed.randrange(size), seed.randrange(8))
    mend(disk)
    assert troubles(disk) == []
    found = contents(disk)
    assert sum(found.get(offset) != body for offset, body in wanted().items()) <= 1
    assert set(found.values()) <= {None, *wanted().values()}


def test_repair_refuses_a_store_that_is_open() -> None:
    """With the lock held by a node nothing is touched."""
    disk = make_data()
    store = open_store(disk)
    before = disk.operations
    with pytest.raises(StoreInUse):
        mend(disk)
    assert disk.operations == before
    store.close()


def test_hole_is_filled_so_that_the_whole_log_is_records() -> None:
    """What a scan meets after the repair is one unbroken row; the damaged bytes are kept aside (D3)."""
    disk = make_data()
    disk.flip_bit(f"{SEGMENTS}/{4096:020d}", 1000)
    [hole] = [finding for finding in troubles(disk) if finding.kind == "log_hole"]
    assert hole.severity is Severity.DAMAGE
    mend(disk)
    disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
    store = open_store(disk)
    assert store.recovery.holes == ()
    assert sum(body is None for body in bodies(store).values()) == 1
    assert len(disk.list(f"{ROOT}/pyddmq/set-aside")) == 1


def test_unit_of_a_lost_record_never_leads_to_its_filling() -> None:
    """A reader that trusts the unit gets nothing rather than the filling's body."""
    disk = make_data()
    for bit in (1000, 1170, 1340):
        disk.flip_bit(f"{SEGMENTS}/{4096:020d}", bit)
    mend(disk)
    found = contents(disk)
    assert {body for body in found.values() if body is not None} <= set(wanted().values())
    assert sum(body is None for body in found.values()) == 3


@pytest.mark.parametrize("size", [106, 107, 125, 126, 127, 4000, 1 << 20])
def test_filling_is_a_valid_record_of_its_size(size: int) -> None:
    """Whatever the hole's size; it stands in no queue."""
    record = memoryview(filling(7, size, 1_700_000_000_000) + bytes(8))
    entry = check_record(record, 0, size, 7)
    assert entry is not None
    assert (entry.size, entry.indexed, entry.store_ms) == (size, False, 1_700_000_000_000)


@pytest.mark.parametrize("name", ["segment_bytes", "queue_file_units"])
@pytest.mark.parametrize("factor", [0.5, 3, 1000])
def test_sizes_that_no_file_has_are_refused(name: str, factor: float) -> None:
    """A sealed `store.json` of another store: whole files are neither moved, cut nor grown by its sizes."""
    disk = make_data()
    file = SealedFile(disk, f"{ROOT}/pyddmq/store.json")
    values = file.load()
    file.save({**values, name: int(values[name] * factor)})
    before = image_of(disk, ROOT)
    for look in (check, mend):
        with pytest.raises(StoreUnreadable, match=r"store\.json says that .* files have .* bytes, .* move it away"):
            look(disk)
    assert image_of(disk, ROOT) == before
    disk.remove(f"{ROOT}/pyddmq/store.json")
    mend(disk)
    assert file.load() == values
    assert contents(disk) == wanted()


@pytest.mark.parametrize("is_damaged", [True, False])
def test_sizes_that_no_file_tells_are_left_to_the_node(*, is_damaged: bool) -> None:
    """No queue file is there to tell its size: whatever the node has configured, it starts after the repair."""
    disk = SimDisk()
    store = open_store(disk, queue_file_units=77)
    store.create_topic("t", 1)
    store.put("t", b"one")
    store.close()
    folder = f"{ROOT}/consumequeue/t/0"
    for name in disk.list(folder):
        disk.remove(f"{folder}/{name}")
    if is_damaged:
        disk.flip_bit(f"{ROOT}/pyddmq/store.json", 33)
    else:
        disk.remove(f"{ROOT}/pyddmq/store.json")
    mend(disk)
    store = open_store(disk, queue_file_units=77)
    assert list(bodies(store, "t", 0).values()) == [b"one"]
    store.close()
    assert SealedFile(disk, f"{ROOT}/pyddmq/store.json").load()["queue_file_units"] == 77


def test_files_of_sizes_that_no_store_has_are_refused() -> None:
    """Without a `store.json` the files tell the sizes; a log file of 512 bytes is none of ours or RocketMQ's."""
    disk = SimDisk()
    for folder in ("", "/commitlog", "/pyddmq"):
        disk.make_folder(f"{ROOT}{folder}")
    file = disk.open(f"{SEGMENTS}/{0:020d}", create=True)
    file.write(0, [bytes(512)])
    file.close()
    with pytest.raises(
        StoreUnreadable, match=r"do not form a store: segment_bytes must be .*512.*restore the store's own"
    ):
        mend(disk)


def test_acks_survive_the_repair_of_everything_else() -> None:
    """A repair of the log moves no offset."""
    disk = make_data()
    disk.flip_bit(f"{SEGMENTS}/{4096:020d}", 1000)
    mend(disk)
    store = open_store(disk)
    tracker = open_progress(disk, store).tracker("g", "t", 0, first_offset=lambda: 0)
    assert tracker.watermark >= 50
    assert [offset for offset in range(50, 100) if tracker.is_finished(offset)] == [50, 60, 70, 80, 90]


def test_damaged_journal_keeps_what_can_be_read() -> None:
    """A damaged block costs redelivery of what it held; the position is told."""
    disk = make_data(closed=False)
    spoil_journal(disk)
    [finding] = [each for each in troubles(disk) if each.kind == "journal_damaged"]
    assert finding.file.startswith("pyddmq/acks/")
    assert finding.position
    metrics = Metrics()
    contents(disk, metrics)
    assert metrics.value("pyddmq_ack_journal_damage_total", "hole") == 1
    assert troubles(disk) == []


@pytest.mark.parametrize("repaired", [False, True])
def test_lost_snapshot_lets_no_unknown_group_skip_anything(*, repaired: bool) -> None:
    """Only a configuration knows which groups there are: until they all started, also over kills, none is new."""
    disk = make_data()
    lose_snapshot(disk)
    assert [finding.kind for finding in troubles(disk)] == ["journal_snapshot_lost"]
    if repaired:
        mend(disk)
        assert troubles(disk) == []
    for start in range(4):
        store = open_store(disk)
        progress = open_progress(disk, store)
        tracker = progress.tracker(f"unknown-{start}", "t", 0, first_offset=lambda: COUNT)
        assert tracker.watermark == (0 if start < 3 else COUNT)
        if start == 2:
            progress.groups_started()
            progress.commit()
        progress.flush()
        disk.kill()
    assert troubles(disk) == []


def set_format(disk: SimDisk, number: int) -> None:
    """Say in store.json that a version with this format wrote the store."""
    file = SealedFile(disk, f"{ROOT}/pyddmq/store.json")
    file.save({**file.load(), "format": number})


def test_older_format_is_opened_and_its_number_raised() -> None:
    """The rule for upgrades: nothing is lost, and from then on an older version refuses."""
    disk = make_data()
    set_format(disk, FORMAT_VERSION - 1)
    assert contents(disk) == wanted()
    assert SealedFile(disk, f"{ROOT}/pyddmq/store.json").load()["format"] == FORMAT_VERSION
    assert troubles(disk) == []


def test_newer_format_is_refused_by_everything_and_nothing_is_changed() -> None:
    """A node, a reader, a check, a repair and a backup name both numbers."""
    disk = make_data()
    set_format(disk, FORMAT_VERSION + 1)
    before = disk.contents()
    copy = Backup(ROOT, "/copy", source=disk, disk=disk, clock=ManualClock())
    for attempt in (contents, check, mend, lambda _: copy.make()):
        with pytest.raises(StoreFormatNewer, match=f"format {FORMAT_VERSION + 1}"):
            attempt(disk)
    assert disk.contents() == before


def test_deleted_topic_is_no_trouble() -> None:
    """Its records stay in the log until retention and stand in no queue; made again, it goes on behind them."""
    disk = make_data()
    store = open_store(disk)
    store.topic_changes.delete("u")
    store.close()
    assert troubles(disk) == []
    store = open_store(disk)
    store.create_topic("u", 2)
    append(store, b"again", topic="u", queue_id=1)
    store.close()
    assert troubles(disk) == []
    disk.flip_bit(f"{SEGMENTS}/{4096:020d}", 1000)
    mend(disk)
    assert troubles(disk) == []
    store = open_store(disk)
    assert [body for body in bodies(store, "u", 1).values() if body] == [b"again"]
    store.close()
    Backup(ROOT, "/copy", source=disk, disk=disk, clock=ManualClock()).make()
    store = open_store(disk, root="/copy")
    assert [body for body in bodies(store, "u", 1).values() if body] == [b"again"]


def test_index_and_checkpoint_of_rocketmq_5_5_are_sound() -> None:
    """It indexes tags as `topic#T#tag`, and has a sixth number in its checkpoint; queries do not distrust the file."""
    disk = SimDisk()
    store = open_store(disk, index_slots=7, index_entries=28)
    store.create_topic("t", 1)
    for number in range(3):
        store.put("t", b"x", key=f"k{number}", tags="TagA")
    physical, _, _ = store.topics["t"].queues[0].read(2, 1)[0]
    store.close()
    [name] = disk.list(f"{ROOT}/index")
    disk.remove(f"{ROOT}/pyddmq/index.json")
    file = IndexFile(disk, f"{ROOT}/index/{name}", slots=7, entries=28)
    file.read_header()
    file.load()
    file.put(Rows([KeyHasher().hash(b"t", b"T#TagA")], [physical], [file.header.end_ms]))
    at_once(disk, file.writing())
    file.release()
    disk.open(f"{ROOT}/checkpoint").write(40, [(1 << 20).to_bytes(8, "big")])
    assert [each.kind for each in check(disk) if each.severity is not Severity.NOTE] == []
    store = open_store(disk, metrics=(metrics := Metrics()), index_slots=7, index_entries=28)
    assert by_key(store, "t", "T#TagA").run().found == []
    assert metrics.value(INDEX_REBUILT, "damaged") == 0
    assert len(by_key(store, "t", "k2").run().found) == 1
    store.close()


def test_repair_empties_the_timer_units_of_lost_records() -> None:
    """RocketMQ would stop at the record that fills the hole; units of other records stay."""
    disk = SimDisk()
    store = open_store(disk)
    append(store, b"lost", b"kept", topic=store.create_topic("t", 1).name)
    store.flush()
    (lost, size, _), (kept, _, _) = store.topics["t"].queues[0].read(0, 2)
    store.close()
    disk.make_folder(f"{ROOT}/timerlog")
    path = f"{ROOT}/timerlog/{0:020d}"
    units = [TIMER_UNIT.pack(52, -1, 1, 1_000, 500, physical, size, 7, 0) for physical in (kept, lost, kept)]
    disk.open(path, create=True).write(0, [b"".join(units).ljust(52 * 20 + 16, b"\x00")])
    disk.flip_bit(f"{ROOT}/commitlog/{0:020d}", lost + 5)
    emptied = TIMER_UNIT.pack(52, -1, 1, 1_000, 500, lost, 0, 7, 0)
    mend(disk)
    assert disk.open(path).read(0, 3 * 52) == units[0] + emptied + units[2]
