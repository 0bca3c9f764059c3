"""The file of an audit trail: it only grows, is put aside when it is large, and is believed as far as it goes."""

from __future__ import annotations

import asyncio
import errno
import json
from random import Random

import msgspec
import pytest

from conf.sections.admin import AdminConfig
from proxy.access.audit_file import RECENT_MAX, Trail
from proxy.access.views import AuditEntry
from pyddmq.testing import SimDisk

FOLDER = "/data/pyddmq/audit"
SMALL = AdminConfig(audit_file_bytes=64 * 1024, audit_files=3)


def trail(disk: SimDisk, settings: AdminConfig = SMALL) -> Trail:
    """Open a trail, as a start does."""
    found = Trail(disk, FOLDER, "changes", syncs=None, settings=lambda: settings)
    found.load()
    return found


def entry(number: int, asked: str = "") -> AuditEntry:
    """Make an entry."""
    return AuditEntry(
        number=number,
        at_ms=number,
        what="pause",
        outcome="done",
        principal="anna",
        way="token",
        address="::1",
        asked=asked,
    )


def text(disk: SimDisk, file: str = "changes.jsonl") -> bytes:
    """Read a file."""
    opened = disk.open(f"{FOLDER}/{file}")
    return opened.read(0, opened.size())


def test_line_is_json_and_comes_behind_the_others() -> None:
    """One object a line; what was there stays as it was, byte for byte, over a restart too."""
    disk = SimDisk()
    first = trail(disk)
    asyncio.run(first.keep(entry(1)))
    before = text(disk)
    first.close()
    second = trail(disk)
    assert (second.number, [each.number for each in second.recent]) == (1, [1])
    asyncio.run(second.keep(entry(2)))
    assert text(disk).startswith(before)
    lines = [json.loads(line) for line in text(disk).splitlines()]
    assert [(each["number"], each["principal"], each["atMs"]) for each in lines] == [(1, "anna", 1), (2, "anna", 2)]


def test_longest_line_is_read_again() -> None:
    """A body of characters of four bytes each, by the longest name: its number is not given a second time."""
    disk = SimDisk()
    longest = msgspec.structs.replace(
        entry(1, asked='"\N{GRINNING FACE}' * 2_000), principal="p" * 128, proof="k" * 200
    )
    wide = msgspec.structs.replace(longest, number=2, asked="\N{GRINNING FACE}" * 4_000)
    one = trail(disk)
    for each in (longest, wide):
        asyncio.run(one.keep(each))
    again = trail(disk)
    assert (again.number, list(again.recent)) == (2, [longest, wide])


def test_kept_line_is_there_after_a_power_cut() -> None:
    """What somebody was told by is durable; a line that was only added may be gone."""
    disk = SimDisk()
    one = trail(disk)
    asyncio.run(one.keep(entry(1)))
    one.add(entry(2))
    disk.crash(Random(1), modes=("none",))
    assert [each.number for each in trail(disk).recent] == [1]


def test_large_file_is_put_aside_and_the_oldest_goes() -> None:
    """As many as are kept, each no larger than it may be; no line is in two of them."""
    disk = SimDisk()
    one = trail(disk)
    for number in range(1, 200):
        one.add(entry(number, asked="x" * 3_000))
    assert disk.list(FOLDER) == ["changes.1.jsonl", "changes.2.jsonl", "changes.jsonl"]
    sizes = [len(text(disk, name)) for name in disk.list(FOLDER)]
    assert all(0 < size <= SMALL.audit_file_bytes for size in sizes)
    numbers = [
        json.loads(line)["number"] for at in (".2", ".1", "") for line in text(disk, f"changes{at}.jsonl").splitlines()
    ]
    assert numbers == list(range(numbers[0], 200))


def test_fewer_files_are_kept_once_a_reload_says_so() -> None:
    """The next file that is put aside has those beyond the number go."""
    disk = SimDisk()
    settings = AdminConfig(audit_file_bytes=64 * 1024, audit_files=6)
    one = Trail(disk, FOLDER, "changes", syncs=None, settings=lambda: settings)
    for number in range(1, 200):
        one.add(entry(number, asked="x" * 3_000))
    assert len(disk.list(FOLDER)) == 6
    settings = AdminConfig(audit_file_bytes=64 * 1024, audit_files=2)
    for number in range(200, 230):
        one.add(entry(number, asked="x" * 3_000))
    assert disk.list(FOLDER) == ["changes.1.jsonl", "changes.jsonl"]


@pytest.mark.parametrize(
    "tail", [b'{"number": 7, "atMs"', b"\x00" * 40, b"\xff{", b'{"number": "7"}\n', b"x" * 40_000 + b"\n"]
)
def test_what_is_no_entry_is_passed_over_and_stays(tail: bytes) -> None:
    """A torn line, and whatever somebody wrote into the file, is no entry; the next line is one of its own."""
    disk = SimDisk()
    one = trail(disk)
    one.add(entry(1))
    one.close()
    opened = disk.open(f"{FOLDER}/changes.jsonl")
    opened.write(opened.size(), [tail])
    two = trail(disk)
    assert [each.number for each in two.recent] == [1]
    two.add(entry(2))
    assert tail in text(disk)
    assert json.loads(text(disk).splitlines()[-1])["number"] == 2
    assert [each.number for each in trail(disk).recent] == [1, 2]


def test_line_that_finds_no_space_is_not_there() -> None:
    """It is refused, nothing of it stays, and the next one is whole."""
    disk = SimDisk()
    one = trail(disk)
    one.add(entry(1))
    before = text(disk)
    disk.fail("write", error=errno.ENOSPC, path_part="audit")
    with pytest.raises(OSError, match="No space"):
        asyncio.run(one.keep(entry(2)))
    assert text(disk) == before
    assert [each.number for each in one.recent] == [1]
    disk.heal()
    asyncio.run(one.keep(entry(2)))
    assert len(text(disk).splitlines()) == 2


def test_nothing_is_believed_of_a_file_whose_sync_failed() -> None:
    """The line is refused, and what comes next goes into a new file."""
    disk = SimDisk()
    one = trail(disk)
    asyncio.run(one.keep(entry(1)))
    disk.fail("sync", path_part="changes.jsonl")
    with pytest.raises(OSError, match="Input/output error"):
        asyncio.run(one.keep(entry(2)))
    disk.heal()
    asyncio.run(one.keep(entry(3)))
    assert disk.list(FOLDER) == ["changes.1.jsonl", "changes.jsonl"]
    assert json.loads(text(disk))["number"] == 3


def test_memory_holds_so_many_entries() -> None:
    """Whatever the file has."""
    one = trail(SimDisk(), AdminConfig())
    for number in range(RECENT_MAX + 10):
        one.add(entry(number))
    assert len(one.recent) == RECENT_MAX
