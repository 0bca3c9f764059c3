"""Fills the cache of a partition from a long log, in a process of its own (`upstream.kafka_client.log_load`).

Rows are appended as they are read, without indexes. At the end those of identities with several rows are taken by the
rules of a cache, in the order of the log, as if each had been read one by one: identities do not depend on each other.
A file that is not complete has no position, so no owner uses it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from zlib import crc32

from broker.runtime.seams import Disk
from upstream.kafka.link import Checkpoint, KafkaRecord
from upstream.kafka.waiting.cache import INSERT, TABLES, PartitionCache
from upstream.kafka.waiting.records import VERSION, Damaged, KeyState, NewerRecord, identity_text
from upstream.kafka.waiting.rows import CachedRecord, row_of

LOAD_RECORDS = 100_000
"""Offsets of a log from which on a process loads it; a shorter one is read sooner than a process starts."""
_SORT_KBYTES = 32_000
_NAMES_MAX = 500
_DELETED = -1
"""State of a row whose key was deleted."""


class LogLoad(PartitionCache):
    """The file while it is filled.

    Args:
        path, disk: As of the cache.
        checkpoint: What the file is of.
    """

    def __init__(self, path: str, disk: Disk, checkpoint: Checkpoint) -> None:
        super().__init__(path, disk)
        self.clear(checkpoint.low)
        self._checkpoint = checkpoint
        self._has_deleted = False
        self._database.executescript(
            # What is not completed is not used. The other indexes have few rows.
            "DROP INDEX by_time; DROP INDEX by_topic; DROP INDEX by_name; "
            f"PRAGMA journal_mode = OFF; PRAGMA cache_size = -{_SORT_KBYTES}"
        )

    def append(self, records: Sequence[KafkaRecord], damaged: Callable[[KafkaRecord], object]) -> None:
        """Take the next records of the log; `damaged` is called with those that no version wrote.

        Raises:
            NewerRecord: This version cannot know what it says.
        """
        names = [crc32(identity_text(each.key or b"")) for each in records]
        keys: dict[int, bytes | None] = {}
        several = {
            name
            for name, each in zip(names, records, strict=True)
            if keys.setdefault(name, each.key) != each.key
        }  # fmt: skip
        later: dict[int, CachedRecord] = {}
        rows: list[tuple[object, ...]] = []
        for name, record in zip(reversed(names), reversed(records), strict=True):
            key, value = record.key or b"", record.value
            if value and value[0] > VERSION:
                raise NewerRecord(f"version {value[0]}")
            try:
                row = None if value is None else row_of(key, value, record.offset)
            except Damaged:
                damaged(record)
                continue
            if row is None:
                row = CachedRecord(key, _DELETED, 0, "", "", 0, record.offset, b"")
                self._has_deleted = True
            if name not in later or name in several or not _is_replaced(row, later[name]):
                later[name] = row
                rows.append((*row[:-1], name))
        rows.reverse()
        self._database.executemany(INSERT, rows)

    def complete(self, position: int, now_ms: int) -> None:
        """Make a cache of what was appended, with the offset of the next record to read, and close it."""
        self._database.execute("CREATE INDEX by_name ON records (name)")
        last = -1
        while names := self._several(last):
            last = names[-1]
            for rows in self._rows_of_names(names).values():
                self._take_again(sorted(rows, key=lambda row: row.id))
        if self._has_deleted:
            self._database.execute("DELETE FROM records WHERE state = ?", (_DELETED,))
        self._database.executescript(TABLES)
        self._stamp(self._checkpoint)
        self.save(position, now_ms)
        self.close()

    def _several(self, after: int) -> list[int]:
        found = self._database.execute(
            "SELECT name FROM records WHERE name > ? GROUP BY name HAVING COUNT(*) > 1 ORDER BY name LIMIT ?",
            (after, _NAMES_MAX),
        )
        return [name for (name,) in found]

    def _take_again(self, rows: Sequence[CachedRecord]) -> None:
        """Have rows of one name, in the order of the log, be as if their records were read one by one."""
        alone = all(each.key == rows[0].key for each in rows)
        gone = rows[:-1] if alone else rows
        self._database.executemany("DELETE FROM records WHERE id = ?", [(each.id,) for each in gone])
        for row in () if alone else rows:
            self._change(row.key, None if row.state == _DELETED else row.value, row.position)


def _is_replaced(row: CachedRecord, later: CachedRecord) -> bool:
    """Whether a later record of the same key leaves nothing of a record's effect, on other keys of its identity too."""
    if row.state == KeyState.CHECKS:
        return later.state == KeyState.CHECKS
    return not row.owned or bool(later.owned)
