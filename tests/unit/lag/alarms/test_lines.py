"""Alarms as lines: each once, whole, whatever was there before."""

from __future__ import annotations

import pytest

from lag.alarms.lines import AlarmLines
from pyddmq.testing import SimDisk
from tests.unit.lag.alarms.written import lines_of

PATH = "out/alarms.jsonl"
EVENTS = [{"key": f"A{number}-opened", "number": number, "text": "ü\n"} for number in range(4)]


@pytest.mark.parametrize("cut", range(0, 60, 7))
def test_torn_last_line_is_cut_and_written_again(cut: int) -> None:
    """Wherever the write stopped."""
    disk = SimDisk()
    AlarmLines(disk, PATH).append(EVENTS[:2])
    file = disk.open(PATH)
    file.truncate(file.size() - cut)
    assert AlarmLines(disk, PATH).append(EVENTS) == frozenset(event["key"] for event in EVENTS)
    assert lines_of(disk, PATH) == EVENTS


def test_lines_that_are_there_are_not_written_again() -> None:
    """By the same process, by another, and among lines of others."""
    disk = SimDisk()
    lines = AlarmLines(disk, PATH)
    lines.append(EVENTS[:3])
    lines.append(EVENTS[:3])
    disk.open(PATH).write(disk.open(PATH).size(), [b'[1]\n{"no": "key"}\nnot json\n'])
    AlarmLines(disk, PATH).append(EVENTS[1:])
    assert disk.open(PATH).read(0, 10_000).count(b"opened") == 4
