"""The timer log against a plain model: a list of units, over files' borders, marks, cuts, kills and power losses.

Invariants: every unit is where its number says and reads as it was written; a slot's units are found from its last one
back to the oldest that is kept; a record's unit is found by its offset; behind the last unit nothing reads as one;
every file has its full size, and a blank behind its last unit.
"""

from __future__ import annotations

import contextlib
import errno
import struct
from dataclasses import dataclass, field
from itertools import product
from random import Random

import pytest
from hypothesis import settings
from hypothesis import strategies as some
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from broker.scheduled.timer.log_units import take
from broker.scheduled.timer.pending.log import (
    BLANK_MAGIC,
    MAGIC_DELETE,
    MAGIC_ROLL,
    MAGIC_TIMER,
    UNIT,
    TimerLog,
    TimersDamaged,
    Unit,
)
from pyddmq.testing import PowerCut, SimDisk
from tests.stopping import end_run

ROOT = "/s"
SLOTS_MS = [1_700_000_000_000 + 1000 * number for number in range(3)]
MAGICS = (MAGIC_TIMER, MAGIC_TIMER | MAGIC_ROLL, MAGIC_TIMER | MAGIC_DELETE)
FILE_BYTES = (105, 52 * 2 + 16, 52 * 3 + 16 + 51, 52 * 11 + 16)
"""One unit to a file, or a few; with room to spare, and sectors' borders within a file."""


@dataclass
class Known:
    """A unit of the model.

    Attributes:
        unit: As it stands in the file.
        marked: Whether it is marked, and that is not in the file yet.
        previous: What a power loss may leave of this field, each of them changed in place.
        size: Likewise.
        due: Likewise.
    """

    unit: Unit
    marked: bool = False
    previous: set[int] = field(default_factory=set)
    size: set[int] = field(default_factory=set)
    due: set[int] = field(default_factory=set)

    @property
    def seen(self) -> Unit:
        """As it is read."""
        return self.unit._replace(size=0) if self.marked else self.unit

    def write(self, **fields: int) -> None:
        """Change it in the file."""
        self.unit = self.unit._replace(**fields)
        self.previous.add(self.unit.previous)
        self.size.add(self.unit.size)
        self.due.add(self.unit.due_ms)

    def sync(self) -> None:
        """What is in the file is on the disk."""
        self.previous, self.size, self.due = {self.unit.previous}, {self.unit.size}, {self.unit.due_ms}


class TimerLogModel(RuleBasedStateMachine):
    """One log, its file's size drawn; units count from the beginning, those of deleted files included."""

    def __init__(self) -> None:
        super().__init__()
        self.disk = SimDisk()
        self.disk.make_folder(ROOT)
        self.units: list[Known] = []
        self.first = self.synced = 0
        self.physical = 0
        self.cut_unsynced = False

    @initialize(file_bytes=some.sampled_from(FILE_BYTES))
    def create(self, file_bytes: int) -> None:
        """Make an empty log."""
        self.file_bytes, self.per_file = file_bytes, (file_bytes - 16) // 52
        self.log = TimerLog(ROOT, disk=self.disk, file_bytes=file_bytes)
        assert not self.log.open()

    def place(self, number: int) -> int:
        """Position of a unit, by the model."""
        return number // self.per_file * self.file_bytes + number % self.per_file * 52

    def pick(self, draw: int) -> int:
        """Number of one of the units that are kept."""
        return self.first + draw % (len(self.units) - self.first)

    def any_kept(self) -> bool:
        """Whether there is a unit to change."""
        return len(self.units) > self.first

    # Changes

    @rule(
        drawn=some.lists(some.tuples(some.sampled_from(SLOTS_MS), some.sampled_from(MAGICS)), max_size=9),
        failed_after=some.none() | some.integers(0, 6),
    )
    def append(self, drawn: list[tuple[int, int]], failed_after: int | None) -> None:
        """Write some units, linked back; a write that fails is made again."""
        data, new = bytearray(), list[Known]()
        for slot_ms, magic in drawn:
            before = [number for number, known in enumerate([*self.units, *new]) if known.unit.slot_ms == slot_ms]
            previous = self.place(before[-1]) if before else -1
            self.physical += 200
            unit = Unit(previous, magic, slot_ms, self.physical, 200, 0x8000 - self.physical, slot_ms + 500)
            data += UNIT.pack(
                52, previous, magic, slot_ms - 9000, 9000, unit.physical, 200, unit.topic_hash, unit.due_ms
            )
            new.append(Known(unit))
        if failed_after is not None:
            self.disk.fail("write", error=errno.ENOSPC, skip=failed_after)
            try:
                self.log.append(data)
            except OSError:
                assert self.log.count == len(self.units), "a failed append counts units"
            else:
                self.log.count = len(self.units)
            self.disk.heal()
        self.log.append(data)
        for known in new:
            known.sync()
        self.units += new

    @precondition(any_kept)
    @rule(draw=some.integers(0, 1 << 16))
    def mark(self, draw: int) -> None:
        """A unit needs nothing any more; that is seen at once."""
        number = self.pick(draw)
        self.units[number].marked = True
        self.log.marked.add(self.place(number))
        assert self.place(number) in self.log.marked

    @rule()
    def write_marks(self) -> None:
        """Marks go to the file."""
        assert self.log.marked or not any(known.marked for known in self.units[self.first :])
        self.log.write_marks()
        for known in self.units:
            if known.marked:
                known.marked = False
                known.write(size=0)
        assert not self.log.marked

    @precondition(any_kept)
    @rule(
        draw=some.integers(0, 1 << 16),
        what=some.sampled_from(["unmark", "relink", "due", "anew"]),
        value=some.integers(0, 9),
    )
    def change(self, draw: int, what: str, value: int) -> None:
        """Change a unit in place."""
        number = self.pick(draw)
        known = self.units[number]
        if what == "unmark":
            self.log.unmark(self.place(number), 200)
            known.marked = False
            known.write(size=200)
        elif what == "due":
            self.log.set_due(self.place(number), known.unit.slot_ms + value)
            known.write(due_ms=known.unit.slot_ms + value)
        elif what == "anew":
            end = min(number + value, len(self.units))
            self.log.write_anew(number, end)
        else:
            # To one before it in its slot, or none, as a clean stop does.
            back = [each for each, other in enumerate(self.units[:number]) if other.unit.slot_ms == known.unit.slot_ms]
            previous = self.place(back[value % len(back)]) if back and value else -1
            self.log.relink(self.place(number), previous)
            known.write(previous=previous)

    @rule()
    def sync(self) -> None:
        """What was written survives everything from now on; marks that were not written are not part of it."""
        self.log.sync()
        self.synced = len(self.units)
        self.cut_unsynced = False
        for known in self.units:
            known.sync()

    @precondition(any_kept)
    @rule(draw=some.integers(0, 1 << 16))
    def cut(self, draw: int) -> None:
        """Forget the units from some number on; others take their places."""
        number = self.pick(draw)
        self.log.cut(number)
        self.units = self.units[:number]
        self.cut_unsynced = True
        self.synced = min(self.synced, number)

    @precondition(any_kept)
    @rule(draw=some.integers(0, 1 << 16), keep=some.none() | some.integers(0, 1 << 16))
    def drop(self, draw: int, keep: int | None) -> None:
        """Files go whose units all name earlier records, but for the last, and not from one that is referenced on."""
        below = self.units[self.pick(draw)].unit.physical
        kept = len(self.units) if keep is None else self.pick(keep)
        first, last_file = self.first, (len(self.units) - 1) // self.per_file
        while first // self.per_file < last_file and first + self.per_file <= len(self.units):
            if self.units[first + self.per_file - 1].unit.physical >= below or kept < first + self.per_file:
                break
            first += self.per_file
        dropped = self.log.drop_before(below, keep=self.place(kept))
        # A file that a cut left empty may be the last one.
        assert dropped * self.per_file == self.log.first - self.first
        assert self.log.first in (first, first + self.per_file)
        self.first = self.log.first
        self.synced = max(self.synced, self.first)

    # Stops

    @rule(kill=some.booleans())
    def open_again(self, kill: bool) -> None:
        """A stop, or a kill: everything that was written is there; marks that were not are gone."""
        if kill:
            self.disk.kill()
        else:
            self.log.close()
        for known in self.units:
            known.marked = False
        self.reopen()
        self.log.count = len(self.units)

    @rule(seed=some.integers(0, 1 << 20))
    def lose_power(self, seed: int) -> None:
        """What was synced is there, changes in place since then done or not; what follows is torn, and is cut."""
        self.disk.crash(Random(seed))
        self.units = self.units[: self.synced]
        try:
            self.reopen()
        except TimersDamaged:
            assert self.cut_unsynced, "a file of another size"
            self.log = TimerLog(ROOT, disk=self.disk, file_bytes=self.file_bytes)
            self.log.reset()
            self.units, self.first, self.synced, self.cut_unsynced = [], 0, 0, False
            return
        count = len(self.units)
        for number in range(self.first, count):
            known = self.units[number]
            found = self.log.unit(self.place(number))
            assert found._replace(previous=0, size=0, due_ms=0) == known.unit._replace(previous=0, size=0, due_ms=0)
            assert found.size in known.size
            assert found.previous in halves(known.previous)
            assert found.due_ms in halves(known.due)
            known.unit, known.marked = found, False
            if found.previous not in known.previous or found.due_ms not in known.due:
                # Torn between two sectors: whoever changed it does so again.
                known.write(previous=max(known.previous), due_ms=max(known.due))
                self.log.relink(self.place(number), known.unit.previous)
                self.log.set_due(self.place(number), known.unit.due_ms)
        self.log.cut(count)
        self.log.count = count
        self.sync()

    def reopen(self) -> None:
        """Open what is there; the files say of what size they are."""
        self.log = TimerLog(ROOT, disk=self.disk, file_bytes=52 * 100)
        if self.log.open():
            assert self.log.file_bytes == self.file_bytes
            assert self.log.first == self.first
        else:
            assert self.synced == self.first
            self.log = TimerLog(ROOT, disk=self.disk, file_bytes=self.file_bytes)
            self.units, self.first, self.synced = [], 0, 0

    # What must hold

    @invariant()
    def units_are_where_they_were_written(self) -> None:
        """By position, one or many, raw, and the reverse."""
        if not hasattr(self, "log"):
            return
        log, numbers = self.log, range(self.first, len(self.units))
        assert (log.first, log.count) == (self.first, len(self.units))
        wanted = [self.units[number].seen for number in numbers]
        assert [log.position(number) for number in numbers] == [self.place(number) for number in numbers]
        assert [log.number(self.place(number)) for number in numbers] == list(numbers)
        assert [log.unit(self.place(number)) for number in numbers] == wanted
        places = [self.place(number) for number in numbers]
        assert take(log, places) == list(zip(places, wanted, strict=True))
        raw = [each for run in log.runs(self.first, len(self.units), 4) for each in log.raw(*run)]
        assert [each[5] for each in raw] == [unit.physical for unit in wanted]
        for number in numbers:
            assert log.find(self.units[number].unit.physical) == self.place(number)
            assert log.find(self.units[number].unit.physical + 1) is None

    @invariant()
    def slots_lead_back(self) -> None:
        """From a slot's last unit over all that it is linked to, in any pieces, as far back as files are kept."""
        if not hasattr(self, "log"):
            return
        for slot_ms in SLOTS_MS:
            numbers = [each for each in range(self.first, len(self.units)) if self.units[each].unit.slot_ms == slot_ms]
            if not numbers:
                continue
            wanted, position = [], self.place(numbers[-1])
            while position >= self.place(self.first) and position >= 0:
                unit = self.units[self.log.number(position)].seen
                wanted.append((position, unit))
                position = unit.previous
            found: list[tuple[int, Unit]] = []
            position = self.place(numbers[-1])
            while position >= 0:
                piece, position = self.log.chain(position, slot_ms, above=-1, count_max=3)
                found += piece
            assert found == wanted

    @invariant()
    def nothing_reads_as_a_unit_behind_the_last(self) -> None:
        """Files have their full size, blanks their place, and the rest is empty."""
        if not hasattr(self, "log"):
            return
        for name in self.disk.list(f"{ROOT}/timerlog"):
            content = self.disk.open(f"{ROOT}/timerlog/{name}").read(0, 1 << 20)
            assert len(content) == self.file_bytes
            number, end = int(name) // self.file_bytes, self.per_file * 52
            if (number + 1) * self.per_file <= len(self.units):
                blank = struct.unpack_from(">iqi", content, end)
                assert blank == (self.file_bytes - end, 0, BLANK_MAGIC)
            for place in range(self.per_file):
                if number * self.per_file + place >= len(self.units):
                    with pytest.raises(TimersDamaged):
                        self.log.unit(int(name) + place * 52)


def halves(values: set[int]) -> set[int]:
    """What eight bytes may be when a sector ends in their middle."""
    packed = [struct.pack(">q", value) for value in values]
    return {struct.unpack(">q", one[:4] + other[4:])[0] for one, other in product(packed, packed)}


TestTimerLog = TimerLogModel.TestCase
TestTimerLog.settings = settings(max_examples=75, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("names", [["0", "104"], ["0"], ["208"]])
def test_files_that_do_not_fit_together_are_damage(names: list[str]) -> None:
    """A file is missing between two, has another size, or a name that none of its size has."""
    disk = SimDisk()
    disk.make_folder(f"{ROOT}/timerlog")
    for name in names:
        disk.open(f"{ROOT}/timerlog/{int(name):020d}", create=True).truncate(120 if name != "0" else 104 // len(names))
    if names == ["0"]:
        disk.open(f"{ROOT}/timerlog/{208:020d}", create=True).truncate(104)
    with pytest.raises(TimersDamaged):
        TimerLog(ROOT, disk=disk, file_bytes=104).open()


@pytest.mark.parametrize("power", [False, True])
def test_cut_that_is_broken_off_leaves_the_size_or_damage(power: bool) -> None:
    """A stop at each change of it; a file that is too short is not taken for what all files are to be."""
    for changes in range(4):
        disk = SimDisk()
        disk.make_folder(ROOT)
        log = TimerLog(ROOT, disk=disk, file_bytes=52 * 20 + 16)
        log.append(b"".join(UNIT.pack(52, -1, 1, 0, 5000, number * 100, 100, 7, 5500) for number in range(9)))
        log.sync()
        disk.stop_after(changes)
        with contextlib.suppress(PowerCut):
            log.cut(5)
            log.sync()
        end_run(disk, changes, power=power)
        log = TimerLog(ROOT, disk=disk, file_bytes=52 * 20 + 16)
        try:
            assert log.open()
        except TimersDamaged:
            assert changes == 1 or power
        assert log.file_bytes == 52 * 20 + 16


@pytest.mark.parametrize("position", [-52, 1, 51, 53, 105, 119])
def test_position_between_units_is_damage(position: int) -> None:
    """Two units to a file of 120 bytes; 104 is the blank, behind which the next file begins."""
    log = TimerLog(ROOT, disk=SimDisk(), file_bytes=120)
    with pytest.raises(TimersDamaged):
        log.number(position)
    assert [log.number(each) for each in (0, 52, 104, 120)] == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("at", "what"),
    [(0, "its length"), (12, "its magic"), (4, "a link forward"), (16, "another slot"), (28, "a negative offset")],
)
def test_damaged_unit_is_not_read(at: int, what: str) -> None:
    """Neither by itself nor within its slot."""
    disk = SimDisk()
    disk.make_folder(ROOT)
    log = TimerLog(ROOT, disk=disk, file_bytes=120)
    for physical in (0, 100):
        previous = physical and 0
        log.append(UNIT.pack(52, previous or (-1 if not physical else 0), 1, 0, 5000, physical, 100, 7, 5500))
    disk.open(f"{ROOT}/timerlog/{0:020d}").write(52 + at, [b"\x80" if at == 28 else b"\x7f"])
    with pytest.raises(TimersDamaged):
        log.chain(52, 5000, above=-1, count_max=9)
