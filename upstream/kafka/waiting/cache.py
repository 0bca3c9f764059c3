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
from upstream.kafka.waiting.records import (
    EndedMessage,
    HalfChecks,
    HalfDecision,
    KeyState,
    WaitingRequest,
    decode,
    parse_key,
)

_LAYOUT = 3
_BOOT_SECONDS = 5
"""By so much may the wall clock have been set since."""
_TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value);
CREATE TABLE IF NOT EXISTS records (
    key BLOB PRIMARY KEY, identity BLOB, state INTEGER, at INTEGER, topic TEXT, principal TEXT, owned INTEGER,
    position INTEGER, value BLOB, producer_group TEXT, made INTEGER, checks INTEGER, level INTEGER
);
CREATE INDEX IF NOT EXISTS by_time ON records (state, at);
CREATE INDEX IF NOT EXISTS by_identity ON records (identity);
CREATE INDEX IF NOT EXISTS by_checks ON records (checks, at) WHERE state = 4;
CREATE INDEX IF NOT EXISTS by_age ON records (made, key) WHERE state IN (4, 5);
CREATE INDEX IF NOT EXISTS by_level ON records (level, at) WHERE level > 0;
"""
_COLUMNS = "key, identity, state, at, topic, principal, owned, position, value, producer_group, made, checks, level"
_PENDING = (KeyState.WAITING, KeyState.HALF, KeyState.DISCARDED)
_OPEN = (*_PENDING, KeyState.ENDED)
_UNDECIDED = (KeyState.HALF, KeyState.DISCARDED)
_HALF_STATES = {"undecided": KeyState.HALF, "discarded": KeyState.DISCARDED}


class CachedRecord(NamedTuple):
    """One key.

    Attributes:
        key: Of its record.
        identity: Whose it is (`Identity.text`).
        state: What it has.
        at: When it is due, or ended, ms since the epoch; of a half its next check, of a request its offset.
        topic, principal: Of its identity.
        owned: The owner wrote its record.
        position: Offset of its record.
        value: As it is in the log.
        group: Producer group of a half; "": it is none.
        made: When a half was first written, ms since the epoch.
        checks: How often it was checked.
        level: Its delay level; 0: none.
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
    group: str = ""
    made: int = 0
    checks: int = 0
    level: int = 0


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
        counts: Messages that wait, halves among them, by topic and principal.
        undecided: Halves that are not decided by principal, discarded ones among them.

    Methods raise sqlite3.Error: the file cannot be read or written.
    """

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self.position = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.undecided: Counter[str] = Counter()
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
        """Begin again, to be filled from the log."""
        self._database.close()
        if self._path != ":memory:":
            for ending in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.remove(self._path + ending)
        self._database = self._connect()
        self.position = position
        self._count()

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
        group, owned, made, level = "", 0, 0, 0
        if isinstance(content, WaitingRequest | HalfDecision):
            state, at = KeyState.REQUEST, offset
        elif isinstance(content, EndedMessage):
            state, at, owned, group = KeyState.ENDED, content.at_ms, 1, content.group
        elif isinstance(content, HalfChecks):
            state, at = KeyState.CHECKS, content.next_ms
            # The half's own record stays as it is: a check costs a small one.
            self._database.execute(
                "UPDATE records SET at = ?, checks = ? WHERE identity = ? AND state = ?",
                (content.next_ms, content.times, text, KeyState.HALF),
            )
        else:
            state, at, owned, level = KeyState.WAITING, content.due_ms, int(content.owned), content.level
            if content.half is not None:
                state = _HALF_STATES.get(content.half.state, KeyState.WAITING)
                group, made = content.half.group, content.at_ms
        row = CachedRecord(
            key, text, state, at, identity.topic, identity.principal, owned, offset, value, group, made, level=level
        )
        if state in _OPEN:
            row = self._only(row)
        self._put(row)
        return row

    def _only(self, row: CachedRecord) -> CachedRecord:
        """Have one key only for an identity: the one that an owner wrote under, else the first."""
        others = [each for each in self.rows_of(row.identity) if each.key != row.key and each.state in _OPEN]
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
        """Return the message of an identity, waiting, undecided, discarded or ended."""
        rows = [each for each in self.rows_of(identity) if each.state in _OPEN]
        return rows[0] if rows else None

    def has(self, key: bytes) -> bool:
        """Whether a key has a record."""
        return self._row("key = ?", key) is not None

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

    def due_checks(self, now_ms: int, limit: int, group: str = "") -> list[CachedRecord]:
        """Halves whose next check is due, of one producer group or of all, the first ones."""
        chosen = ("AND producer_group = ?", [group]) if group else ("", [])
        return self._rows(f"state = 4 AND at <= ? {chosen[0]} ORDER BY at, position LIMIT ?", now_ms, *chosen[1], limit)

    def given_up(self, now_ms: int, checks_max: int, before_ms: int, limit: int) -> list[CachedRecord]:
        """Halves that had all their checks and the time to answer the last, and those made before a moment."""
        found = self._rows("state = 4 AND checks >= ? AND at <= ? LIMIT ?", checks_max, now_ms, limit)
        old = self._rows("state IN (4, 5) AND state = 4 AND made < ? ORDER BY made LIMIT ?", before_ms, limit)
        return list({row.key: row for row in [*found, *old]}.values())[:limit]

    def next_check(self, after_ms: int) -> int | None:
        """Return when the next half is to be checked, after a moment; None: none is."""
        found: int | None
        [(found,)] = self._database.execute(
            "SELECT MIN(at) FROM records WHERE state = 4 AND at > ?", (after_ms,)
        ).fetchall()
        return found

    def oldest_half(self) -> int | None:
        """Return when the oldest half was made that is not decided."""
        found: int | None
        [(found,)] = self._database.execute("SELECT MIN(made) FROM records WHERE state IN (4, 5)").fetchall()
        return found

    def halves(self, after: tuple[int, bytes], limit: int) -> list[CachedRecord]:
        """Halves that are not decided, discarded ones among them, from behind one by age; for listings."""
        return self._rows("state IN (4, 5) AND (made, key) > (?, ?) ORDER BY made, key LIMIT ?", *after, limit)

    def overdue(self, now_ms: int) -> int:
        """Return how many messages are due and not delivered."""
        found: int
        [(found,)] = self._database.execute(
            "SELECT COUNT(*) FROM records WHERE state = 0 AND at <= ?", (now_ms,)
        ).fetchall()
        return found

    def next_due(self, without: Iterable[str] = ()) -> int | None:
        """Return when the first message is due; None: none waits."""
        names = list(without)
        marks = ",".join("?" * len(names))
        found: int | None
        [(found,)] = self._database.execute(
            f"SELECT MIN(at) FROM records WHERE state = 0 AND topic NOT IN ({marks})", names
        ).fetchall()
        return found

    def page(self, after: tuple[int, bytes], limit: int, topic: str = "", level: int = -1) -> list[CachedRecord]:
        """Waiting messages by due time, from behind one; for listings. `level`: of a delay level, 0: of any."""
        chosen, values = "", list[object]()
        if topic:
            chosen, values = "AND topic = ?", [topic]
        if level >= 0:
            chosen, values = f"{chosen} AND level {'=' if level else '>'} ? AND level > 0", [*values, level]
        return self._rows(f"state = 0 AND (at, key) > (?, ?) {chosen} ORDER BY at, key LIMIT ?", *after, *values, limit)

    def levels(self, topic: str = "") -> list[tuple[int, int, int]]:
        """Return each delay level in which messages wait: its number, how many, and when the first one is due."""
        chosen, values = ("AND topic = ?", [topic]) if topic else ("", [])
        return self._database.execute(
            f"SELECT level, COUNT(*), MIN(at) FROM records WHERE level > 0 AND state = 0 {chosen} GROUP BY level",
            values,
        ).fetchall()

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
        self.undecided.clear()
        for state, topic, principal, count in self._database.execute(
            "SELECT state, topic, principal, COUNT(*) FROM records WHERE state IN (0, 4, 5) "
            "GROUP BY state, topic, principal"
        ):
            self.counts[topic, principal] += count
            if state in _UNDECIDED:
                self.undecided[principal] += count

    def _rows(self, where: str, *values: object) -> list[CachedRecord]:
        found = self._database.execute(f"SELECT {_COLUMNS} FROM records WHERE {where}", values)
        return [CachedRecord(*each) for each in found]

    def _row(self, where: str, *values: object) -> CachedRecord | None:
        found = self._rows(where, *values)
        return found[0] if found else None

    def _put(self, row: CachedRecord) -> None:
        self._database.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        self._add(row, 1)

    def _drop(self, row: CachedRecord) -> None:
        self._database.execute("DELETE FROM records WHERE key = ?", (row.key,))
        self._add(row, -1)

    def _add(self, row: CachedRecord, count: int) -> None:
        if row.state in _PENDING:
            self.counts[row.topic, row.principal] += count
        if row.state in _UNDECIDED:
            self.undecided[row.principal] += count
