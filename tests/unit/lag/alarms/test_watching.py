"""Alarms from journals: each batch once over kills anywhere, late rounds left out, silent nodes told."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lag.alarms.lines import AlarmLines
from lag.alarms.model import SILENT, AlarmRule
from lag.alarms.places import FilePlace
from lag.alarms.rounds import AlarmPolicy
from lag.alarms.watching import LATE_MS, SeenRound, Watcher
from lag.samples import QueueSample
from pyddmq.testing import SimDisk
from tests.unit.lag.alarms.written import lines_of

PATH = "out/alarms.jsonl"
POLICY = AlarmPolicy(rules=(AlarmRule(statuses=frozenset({"NO_OFFSET", SILENT}), close_after_ms=0),))


class Killed(Exception):
    """The process is gone."""


def watcher(disk: SimDisk) -> Watcher:
    """Begin, as a process does."""
    return Watcher(disk, "state", {"file": FilePlace(AlarmLines(disk, PATH))}, policy=POLICY)


def lines_in(watcher: Watcher) -> AlarmLines:
    """Return the file of a watcher."""
    place = watcher._places["file"]
    assert isinstance(place, FilePlace)
    return place.lines


def seen(time_ms: int, *, good: bool, node: str = "n") -> SeenRound:
    """Return a round of one queue, committed or not."""
    sample = QueueSample(time_ms=time_ms, start=0, end=0, committed=0 if good else None)
    return SeenRound(whose=("c", node), time_ms=time_ms, samples=[(("g", "t", 0), sample)], events=[])


def told(disk: SimDisk) -> list[tuple[str, str, int]]:
    """Return what stands in the file."""
    return [(each["status"], each["event"], each["timeMs"]) for each in lines_of(disk, PATH)]


@settings(max_examples=100, deadline=None)
@given(goods=st.lists(st.booleans(), min_size=1, max_size=12), kills=st.sets(st.integers(0, 30)))
def test_kill_anywhere_in_a_batch_doubles_nothing_and_loses_nothing(goods: list[bool], kills: set[int]) -> None:
    """Before the state is written, between it and the file, in the middle of a line."""
    expected = SimDisk()
    first = watcher(expected)
    for number, good in enumerate(goods):
        first.take(number, [seen(number * 10_000, good=good)])
    disk, steps = SimDisk(), iter(range(1_000_000))

    def killed() -> None:
        if next(steps) in kills:
            raise Killed

    number = 0
    while number < len(goods):
        try:
            each = watcher(disk)
            for at in range(each.state.marks.get("batch", -1) + 1):
                # As `recall` does from the journal.
                each._look(seen(at * 10_000, good=goods[at]))
            lines = lines_in(each)
            save, append = each._file.save, lines.append

            def saving(state: object, save: object = save) -> None:
                killed()
                save(state)  # type: ignore[operator]
                killed()

            def appending(events: object, append: object = append) -> object:
                keys = append(events)  # type: ignore[operator]
                if next(steps) in kills:
                    file = disk.open(PATH)
                    file.truncate(max(0, file.size() - 9))
                    raise Killed
                return keys

            each._file.save = saving  # type: ignore[method-assign]
            lines.append = appending  # type: ignore[method-assign, assignment]
            while number < len(goods):
                each.take(number, [seen(number * 10_000, good=goods[number])])
                number += 1
        except Killed:
            # Spark gives the batch again.
            continue
    watcher(disk)
    assert told(disk) == told(expected)


def test_batch_that_comes_again_is_passed_over() -> None:
    """By its number, whatever is in it."""
    disk = SimDisk()
    watcher(disk).take(0, [seen(0, good=True), seen(10_000, good=True), seen(20_000, good=False)])
    again = watcher(disk)
    again.take(0, [seen(20_000, good=True), seen(30_000, good=True)])
    assert len(again.state.open_alarms()) == 1


def test_round_that_comes_too_late_is_left_out_and_counted() -> None:
    """One that is a little older, as after a step of the clock, is judged."""
    disk = SimDisk()
    each = watcher(disk)
    each.take(0, [seen(LATE_MS * 2, good=True), seen(LATE_MS - 1, good=False), seen(LATE_MS, good=False)])
    assert each.late == 1


def test_node_that_fell_silent_is_an_alarm_until_it_is_back() -> None:
    """Each by itself; seen at any time later, also by the next process, it is the same."""
    disk = SimDisk()
    watcher(disk).take(0, [seen(0, good=True), seen(0, good=True, node="m"), seen(50_000, good=True, node="m")])
    for now_ms in (59_999, 60_000, 61_000, 99_000):
        watcher(disk).look_at_clock(now_ms)
    assert told(disk) == [(SILENT, "opened", 60_000)]
    watcher(disk).take(1, [seen(100_000, good=True)])
    assert told(disk)[1:] == [(SILENT, "closed", 100_000)]


@pytest.mark.parametrize("what", [b"", b"{}"])
def test_state_that_is_damaged_is_told(what: bytes) -> None:
    """And begun anew."""
    disk = SimDisk()
    watcher(disk).take(0, [])
    file = disk.open("state/state")
    file.truncate(0)
    file.write(0, [what])
    assert watcher(disk).trouble is not None


def test_closed_watcher_keeps_no_place_open() -> None:
    """The file is closed, and opened again for who goes on."""
    disk = SimDisk()
    each = watcher(disk)
    each.take(0, [seen(0, good=True)])
    each.look_at_clock(60_000)
    assert lines_in(each)._file is not None
    each.close()
    assert lines_in(each)._file is None
    each.take(1, [seen(100_000, good=True)])
    assert [event for _, event, _ in told(disk)] == ["opened", "closed"]
