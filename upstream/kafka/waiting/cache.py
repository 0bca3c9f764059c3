"""What an owner knows of its partition: one SQLite file, made from the log and deletable at any time.

A row has the offset of the record that it comes from, and only a record with a higher offset changes it: an owner's
own changes are applied when they are committed, and again, without effect, when they are read.

The file is used again only where nothing can be missing in it (`Checkpoint`): of the same topic and the same boot of
the machine (it is not synced), and younger than the log keeps tombstones.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Collection, Iterable
from typing import NamedTuple

from broker.runtime.seams import Disk
from upstream.kafka.link import KafkaRecord
from upstream.kafka.waiting.records import EndedMessage, KeyState, WaitingRecord, WaitingRequest, decode, parse_key

_LAYOUT = 1
_BOOT_SECONDS = 5
"""By so much may the wall clock have been set since."""
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value);
CREATE TABLE IF NOT EXISTS records (
    key BLOB PRIMARY KEY, identity BLOB, state INTEGER, at INTEGER, topic TEXT, principal TEXT, owned INTEGER,
    position INTEGER, value BLOB
);
CREATE INDEX IF NOT EXISTS by_time ON records (state, at);
CREATE INDEX IF NOT EXISTS by_identity ON records (identity);
"""
_COLUMNS = "key, identity, state, at, topic, principal, owned, position, value"


class CachedRecord(NamedTuple):
    """One key.

    Attributes:
        key: Of its record.
        identity: Whose it is (`Identity.text`).
        state: What it has.
        at: When it is due, or ended, ms since the epoch; of a request its offset.
        topic, principal: Of its identity.
        owned: The owner wrote its record.
        position: Offset of its record.
        value: As it is in the log.
    """

    key: bytes
    identity: bytes
    state: int
    at: int
    topic: str
    principal: str
    owned: int
    position: int
    value: bytes


class Checkpoint(NamedTuple):
    """What a file has to be of to be used again.

    Attributes:
        log: The topic, by the ids of cluster and topic; "": not known, and no file is used again.
        boot: When the machine was booted, seconds since the epoch.
        low, high: Bounds of the log now.
        oldest_ms: A file that was written before this moment may lack tombstones.
    """

    log: str
    boot: int
    low: int
    high: int
    oldest_ms: int


class PartitionCache:
    """The rows of one partition.

    Args:
        path: The file, or ":memory:".
        disk: Where it is deleted.

    Attributes:
        position: Offset of the next record to read; 0 or the log's start of a new one.
        counts: Messages that wait, by topic and principal.

    Methods raise sqlite3.Error: the file cannot be read or written.
    """

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self.position = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self._database = self._connect()

    def resume(self, checkpoint: Checkpoint) -> bool:
        """Take over from the file where nothing can be missing in it, else begin with the log's start."""
        try:
            facts = dict(self._database.execute("SELECT name, value FROM facts").fetchall())
            position = facts.get("position", -1)
            if (
                checkpoint.log
                and (facts.get("layout"), facts.get("log")) == (_LAYOUT, checkpoint.log)
                and abs(facts.get("boot", 0) - checkpoint.boot) <= _BOOT_SECONDS
                and checkpoint.low <= position <= checkpoint.high
                and facts.get("saved_ms", 0) >= checkpoint.oldest_ms
            ):
                self.position = position
                self._count()
                return True
        except sqlite3.DatabaseError:
            pass
        self.clear(checkpoint.low)
        self._database.executemany(
            "INSERT OR REPLACE INTO facts VALUES (?, ?)",
            [("layout", _LAYOUT), ("log", checkpoint.log), ("boot", checkpoint.boot)],
        )
        return False

    def clear(self, position: int) -> None:
        """Begin anew, to be filled from the log."""
        self._database.close()
        if self._path != ":memory:":
            for ending in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.remove(self._path + ending)
        self._database = self._connect()
        self.position = position
        self.counts.clear()

    def apply(self, record: KafkaRecord) -> CachedRecord | None:
        """Take a record of the log; returns its row, None: it has none now, or a newer one.

        Raises:
            Damaged, NewerRecord: It is not one that this version knows.
        """
        return self.change(record.key or b"", record.value, record.offset)

    def change(self, key: bytes, value: bytes | None, offset: int) -> CachedRecord | None:
        """Likewise, of a record that was written by this owner."""
        identity, _ = parse_key(key)
        old = self._row("key = ?", key)
        if old is not None and old.position >= offset:
            return None
        if old is not None:
            self._drop(old)
        if value is None:
            return None
        content = decode(value)
        text = identity.text
        owned = 0
        if isinstance(content, WaitingRequest):
            state, at = KeyState.REQUEST, offset
        elif isinstance(content, EndedMessage):
            state, at, owned = KeyState.ENDED, content.at_ms, 1
        else:
            assert isinstance(content, WaitingRecord)
            state, at, owned = KeyState.WAITING, content.due_ms, int(content.owned)
        row = CachedRecord(key, text, state, at, identity.topic, identity.principal, owned, offset, value)
        if state is not KeyState.REQUEST:
            row = self._only(row)
        self._put(row)
        return row

    def _only(self, row: CachedRecord) -> CachedRecord:
        """Have one key only for an identity: the one that an owner wrote under, else the first."""
        others = [each for each in self.rows_of(row.identity) if each.key != row.key and each.state != KeyState.REPEAT]
        if not others:
            return row
        if row.owned:
            for each in others:
                self._drop(each)
                self._put(each._replace(state=KeyState.REPEAT))
            return row
        return row._replace(state=KeyState.REPEAT)

    def save(self, position: int, now_ms: int) -> None:
        """Keep what was changed, with the offset of the next record to read."""
        self.position = max(position, self.position)
        self._database.executemany(
            "INSERT OR REPLACE INTO facts VALUES (?, ?)", [("position", self.position), ("saved_ms", now_ms)]
        )
        self._database.commit()

    def close(self) -> None:
        """Keep nothing more."""
        self._database.close()

    # Questions

    def find(self, identity: bytes) -> CachedRecord | None:
        """Return the message of an identity, waiting or ended."""
        rows = [each for each in self.rows_of(identity) if each.state in (KeyState.WAITING, KeyState.ENDED)]
        return rows[0] if rows else None

    def rows_of(self, identity: bytes) -> list[CachedRecord]:
        """All keys of an identity, but for requests."""
        return self._rows("identity = ? AND state != ? ORDER BY position", identity, KeyState.REQUEST)

    def of(self, state: KeyState, before: int, limit: int) -> list[CachedRecord]:
        """Rows of a state whose `at` is before a moment, the first ones."""
        return self._rows("state = ? AND at < ? ORDER BY at, position LIMIT ?", state, before, limit)

    def due(self, now_ms: int, limit: int, *, only: str = "", without: Collection[str] = ()) -> list[CachedRecord]:
        """Messages that are due, of one topic alone or of all but some."""
        marks = ",".join("?" * len(without))
        if only:
            return self._rows("state = 0 AND at <= ? AND topic = ? ORDER BY at, position LIMIT ?", now_ms, only, limit)
        return self._rows(
            f"state = 0 AND at <= ? AND topic NOT IN ({marks}) ORDER BY at, position LIMIT ?", now_ms, *without, limit
        )

    def next_due(self, without: Iterable[str] = ()) -> int | None:
        """Return when the first message is due; None: none waits."""
        names = list(without)
        marks = ",".join("?" * len(names))
        found: int | None
        [(found,)] = self._database.execute(
            f"SELECT MIN(at) FROM records WHERE state = 0 AND topic NOT IN ({marks})", names
        ).fetchall()
        return found

    def page(self, after: tuple[int, bytes], limit: int, topic: str = "") -> list[CachedRecord]:
        """Waiting messages by due time, from behind one; for listings."""
        chosen = ("AND topic = ?", [topic]) if topic else ("", [])
        return self._rows(
            f"state = 0 AND (at, key) > (?, ?) {chosen[0]} ORDER BY at, key LIMIT ?", *after, *chosen[1], limit
        )

    # Parts

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path)
        try:
            database.execute("PRAGMA synchronous = OFF")
            database.execute("PRAGMA journal_mode = MEMORY")
            database.executescript(_TABLES)
        except sqlite3.DatabaseError:
            database.close()
            if self._path == ":memory:" or not self._disk.exists(self._path):
                raise
            self._disk.remove(self._path)
            database = sqlite3.connect(self._path)
            database.executescript(_TABLES)
        return database

    def _count(self) -> None:
        self.counts.clear()
        for topic, principal, count in self._database.execute(
            "SELECT topic, principal, COUNT(*) FROM records WHERE state = 0 GROUP BY topic, principal"
        ):
            self.counts[topic, principal] = count

    def _rows(self, where: str, *values: object) -> list[CachedRecord]:
        found = self._database.execute(f"SELECT {_COLUMNS} FROM records WHERE {where}", values)
        return [CachedRecord(*each) for each in found]

    def _row(self, where: str, *values: object) -> CachedRecord | None:
        found = self._rows(where, *values)
        return found[0] if found else None

    def _put(self, row: CachedRecord) -> None:
        self._database.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        if row.state == KeyState.WAITING:
            self.counts[row.topic, row.principal] += 1

    def _drop(self, row: CachedRecord) -> None:
        self._database.execute("DELETE FROM records WHERE key = ?", (row.key,))
        if row.state == KeyState.WAITING:
            self.counts[row.topic, row.principal] -= 1
