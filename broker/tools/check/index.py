"""Every index file against what was saved of it, and every entry against its record."""

from __future__ import annotations

from collections.abc import Iterator

from broker.index.file import ENTRY, ENTRY_BYTES, IndexDamaged, IndexFile
from broker.index.keys import KeyHasher, may_keys_of, must_keys_of
from broker.index.state import IndexState, SavedIndex
from broker.log.commit_log import CommitLog
from broker.log.walk import walk
from broker.opening.reading import open_log_for_reading
from broker.opening.store_json import Geometry
from broker.runtime.disks.read_only_disk import ReadingDisk
from broker.runtime.names import is_number
from broker.runtime.steps import run_now
from broker.tools.check.findings import Severity, StoreFinding
from broker.tools.check.small_files import foreign

_NAME_DIGITS = 17
_ENTRIES_AT_ONCE = 4096
_RECORDS_AT_ONCE = 1024
_ANEW = "rebuilt from the log"
_COSTS = "no data; entries are compared with their records, and the file is rebuilt from the log"


def check_index(root: str, geometry: Geometry, end: int, *, disk: ReadingDisk, live: bool) -> Iterator[StoreFinding]:
    """Yield what is wrong with the index of a store.

    Args:
        root: The store.
        geometry: Its sizes.
        end: Commit-log offset of the end of what is valid.
        disk: Where.
        live: Its owner may be writing the newest file.
    """
    saved = IndexState(root, disk=disk).load()
    log, _ = open_log_for_reading(root, geometry, disk=disk)
    log.visible_end = log.end = end
    log.chill(end)
    names = disk.list(f"{root}/index")
    for name in names:
        if not is_number(name) or len(name) != _NAME_DIGITS:
            yield foreign(f"index/{name}")
            continue
        file = IndexFile(disk, f"{root}/index/{name}", slots=geometry.index_slots, entries=geometry.index_entries)
        try:
            yield from _check_file(file, saved, log, disk=disk, live=live)
        except FileNotFoundError:
            # Retention of its owner.
            continue
        except IndexDamaged as error:
            yield _finding("index_damaged", name, str(error))
    if saved is not None and not live:
        for name in sorted(saved.files.keys() - set(names)):
            yield _finding("index_missing", name, "it is missing")
    log.close()


def _check_file(
    file: IndexFile, saved: SavedIndex | None, log: CommitLog, *, disk: ReadingDisk, live: bool
) -> Iterator[StoreFinding]:
    file.read_header()
    if saved is not None:
        file.sums = saved.files.get(file.name)
        if file.resized and file.sums is not None:
            raise IndexDamaged(file, "its size differs from the saved one")
        if file.name in saved.missing or file.name not in saved.files or (live and not _is_as_saved(file)):
            # Not finished: it is not believed, and made again when its time comes.
            return
    run_now(file.verify(again=True))
    if file.header.next_entry <= 1 or file.header.end >= log.visible_end:
        return
    found = _first_difference(file, log, disk)
    if found is not None:
        number, text = found
        position = file.entries_at + ENTRY_BYTES * number
        yield _finding("index_entry_wrong", file.name, text, position=position)


def _is_as_saved(file: IndexFile) -> bool:
    return file.sums is None or file.sums.header == file.header


def _first_difference(file: IndexFile, log: CommitLog, disk: ReadingDisk) -> tuple[int, str] | None:
    """Return number and description of the first entry that is not its record's, None when all are.

    Entries stand in the order of the log. The file's first and last record may have further entries in its neighbours.
    """
    key_hash = KeyHasher().hash
    entries = _entries(file, disk)
    number, found, physical = next(entries, (0, 0, -1))
    header = file.header
    position = max(header.begin, log.min_offset)
    while position <= header.end:
        records, position = walk(log, position, header.end + 1, records_max=_RECORDS_AT_ONCE)
        for record in records:
            while 0 <= physical < record.physical or (physical == record.physical and record.rollback):
                # Its record is damaged, gone, or replaced by a filling: such an entry leads to no message.
                number, found, physical = next(entries, (0, 0, -1))
            wanted = (
                set() if record.rollback else {key_hash(record.topic, key) for key in may_keys_of(record.properties)}
            )
            left = (
                set() if record.rollback else {key_hash(record.topic, key) for key in must_keys_of(record.properties)}
            )
            first = number
            while physical == record.physical:
                if found not in wanted:
                    return number, f"entry {number} is not that of the record at commit-log offset {physical}"
                left.discard(found)
                number, found, physical = next(entries, (0, 0, -1))
            if left and header.begin < record.physical < header.end:
                return first, f"{len(left)} entries of the record at commit-log offset {record.physical} are missing"
    return None


def _entries(file: IndexFile, disk: ReadingDisk) -> Iterator[tuple[int, int, int]]:
    """Yield number, key hash and commit-log offset of every entry that counts."""
    opened = disk.open(file.path)
    base = file.entries_at
    for first in range(1, file.header.next_entry, _ENTRIES_AT_ONCE):
        count = min(_ENTRIES_AT_ONCE, file.header.next_entry - first)
        data = opened.read(base + first * ENTRY_BYTES, count * ENTRY_BYTES)
        for place, (key_hash, physical, _, _) in enumerate(ENTRY.iter_unpack(data[: count * ENTRY_BYTES])):
            yield first + place, key_hash, physical


def _finding(kind: str, name: str, text: str, *, position: int | None = None) -> StoreFinding:
    return StoreFinding(
        kind=kind,
        severity=Severity.WARNING,
        file=f"index/{name}",
        position=position,
        text=text,
        costs=_COSTS,
        repair=_ANEW,
    )
