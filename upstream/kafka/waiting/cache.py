"""What an owner knows of its partition: one SQLite file, made from the log and deletable at any time.

A row has the offset of the record that it comes from, and only a record with a higher offset changes it. An owner's
own changes are applied when they are committed, and passed over when they are read.

The file is used again only where nothing can be missing in it (`Checkpoint`): of the same topic and the same boot of
the machine (it is not synced), and younger than the log keeps tombstones.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from zlib import crc32

from broker.runtime.seams import Disk
from upstream.kafka.link import Checkpoint, KafkaRecord
from upstream.kafka.waiting.records import (
    HEAD_START,
    VERSION,
    Damaged,
    KeyState,
    head_size,
    identity_text,
    parse_key,
)
from upstream.kafka.waiting.rows import CachedRecord, row_of

_LAYOUT = 5
_CACHE_KBYTES = 8_000
_NAMES_MAX = 1000
READ_BYTES = 4 << 20
"""Once rows for a batch have this number of bytes, no more are read; a batch takes fewer."""
_ALWAYS = 1 << 62
_BOOT_SECONDS = 5
"""By so much may the wall clock have been set since."""
TABLES = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value);
CREATE TABLE IF NOT EXISTS records (
    id INTEGER PRIMARY KEY, name INTEGER, key BLOB, state INTEGER, at INTEGER, topic TEXT, principal TEXT,
    owned INTEGER, position INTEGER, value BLOB, producer_group TEXT, made INTEGER, checks INTEGER, level INTEGER
);
CREATE INDEX IF NOT EXISTS by_time ON records (state, at, topic, principal);
CREATE INDEX IF NOT EXISTS by_topic ON records (topic, at) WHERE state = 0;
CREATE INDEX IF NOT EXISTS by_name ON records (name);
CREATE INDEX IF NOT EXISTS by_checks ON records (checks, at) WHERE state = 4;
CREATE INDEX IF NOT EXISTS by_group ON records (producer_group, at) WHERE state = 4;
CREATE INDEX IF NOT EXISTS by_age ON records (state, made, key) WHERE state IN (4, 5);
DROP INDEX IF EXISTS by_level;
CREATE INDEX IF NOT EXISTS by_levels ON records (level, state, at, topic) WHERE level > 0;
"""
"""`name` is a checksum of the identity, for a small index; rows with the same checksum differ in their key."""
_COLUMNS = "key, state, at, topic, principal, owned, position, value, producer_group, made, checks, level, id"
_NAMED = f"SELECT {_COLUMNS} FROM records WHERE name = ?"
INSERT = (
    "INSERT INTO records (key, state, at, topic, principal, owned, position, value, producer_group, made, checks, "
    "level, name) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_UPDATE = (
    "UPDATE records SET state = ?, at = ?, owned = ?, position = ?, value = ?, producer_group = ?, made = ?, "
    "checks = ?, level = ? WHERE id = ?"
)
_PENDING = (KeyState.WAITING, KeyState.HALF, KeyState.DISCARDED)
_OPEN = (*_PENDING, KeyState.ENDED)
_RARE = (KeyState.REQUEST, KeyState.REPEAT, KeyState.HALF, KeyState.DISCARDED)
"""States that most partitions have no row of: to count these costs less than to ask at each turn."""
_END = (
    f"UPDATE records SET state = {KeyState.ENDED:d}, at = ?, owned = 1, position = ?, value = ?, made = 0, checks = 0, "
    "level = 0 WHERE id = ?"
)


class PartitionCache:
    """The rows of one partition.

    Args:
        path: The file, or ":memory:".
        disk: Where it is deleted.

    Attributes:
        position: Offset of the next record to read; 0 or the log's start of a new one.
        counts: Messages that wait, halves among them, by topic and principal.
        undecided: Halves that are not decided by principal, but for discarded ones.

    Methods raise sqlite3.Error: the file cannot be read or written.
    """

    def __init__(self, path: str, disk: Disk) -> None:
        self._path = path
        self._disk = disk
        self.position = 0
        self.counts: Counter[tuple[str, str]] = Counter()
        self.undecided: Counter[str] = Counter()
        self._own: set[int] = set()
        self._rare: Counter[int] = Counter()
        self._passed: tuple[frozenset[str], int] = frozenset(), -_ALWAYS
        """Topics, and before which moment nothing but theirs is due: one that takes nothing may have most of it."""
        self._overdue = -_ALWAYS, 0
        """Until which moment overdue messages were counted, and how many there are."""
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
        self._stamp(checkpoint)
        return False

    def _stamp(self, checkpoint: Checkpoint) -> None:
        self._database.executemany(
            "INSERT OR REPLACE INTO facts VALUES (?, ?)",
            [("layout", _LAYOUT), ("log", checkpoint.log), ("boot", checkpoint.boot)],
        )

    @property
    def load_path(self) -> str:
        """The file that is filled beside this one from a long log (`adopt`); "": this one is in memory."""
        return "" if self._path == ":memory:" else f"{self._path}-load"

    def adopt(self, checkpoint: Checkpoint) -> bool:
        """Take the place of this file by the one that was filled; False: it cannot be used, and this is empty."""
        self._database.close()
        self._remove()
        with contextlib.suppress(FileNotFoundError):
            self._disk.replace(self.load_path, self._path)
        self._database = self._connect()
        return self.resume(checkpoint)

    def clear(self, position: int) -> None:
        """Begin again, to be filled from the log."""
        self._database.close()
        self._remove()
        self._database = self._connect()
        self._own.clear()
        self.position = position
        self._count()

    def read(self, records: Sequence[KafkaRecord], damaged: Callable[[KafkaRecord, Damaged], object]) -> None:
        """Take records of the log; `damaged` is called with those that no version wrote.

        Of an identity that is new and has one key, as nearly all do, the last record counts and is written in bulk;
        others are taken one by one, as identities do not depend on each other.

        Raises:
            NewerRecord: This version cannot know what it says.
        """
        new = [each for each in records if not self._passes_over(each.offset)] if self._own else records
        names = [crc32(identity_text(each.key or b"")) for each in new]
        single = set(self._rows_of_names(names))
        keys: dict[int, bytes | None] = {}
        last: dict[int, KafkaRecord] = {}
        for name, record in zip(names, new, strict=True):
            value = record.value
            if keys.setdefault(name, record.key) != record.key or (value and value[0] > VERSION):
                single.add(name)
            last[name] = record
        found: list[tuple[object, ...]] = []
        for name, record in last.items():
            if name not in single and record.value is not None:
                try:
                    row = row_of(record.key or b"", record.value, record.offset)
                except Damaged:
                    single.add(name)
                else:
                    found.append((*row[:-1], name))
                    self._add(row, 1)
        self._database.executemany(INSERT, found)
        for name, record in zip(names, new, strict=True) if single else ():
            if name in single:
                try:
                    self._change(record.key or b"", record.value, record.offset)
                except Damaged as error:
                    damaged(record, error)

    def _passes_over(self, offset: int) -> bool:
        """Whether a record is this owner's, whose change was made when it was committed."""
        own = offset in self._own
        self._own.discard(offset)
        return own

    def change(self, key: bytes, value: bytes | None, offset: int) -> None:
        """Take a record that was written by this owner, and is to be read again.

        Raises:
            Damaged, NewerRecord: It is not one that this version knows.
        """
        if offset >= self.position:
            self._own.add(offset)
        self._change(key, value, offset)

    def end(self, ended: Sequence[tuple[CachedRecord, bytes, int]], at_ms: int) -> None:
        """Take the ends of messages that this owner has delivered: row, value of the record, its offset."""
        # What was read before its commit was known is in the rows already.
        new = [each for each in ended if each[2] >= self.position]
        self._own.update([offset for _, _, offset in new])
        self._database.executemany(_END, [(at_ms, offset, value, row.id) for row, value, offset in new])
        for row, _, _ in new:
            self._add(row, -1)

    def _change(self, key: bytes, value: bytes | None, offset: int) -> None:
        parse_key(key)
        text = identity_text(key)
        rows = self._named(text)
        old = next((each for each in rows if each.key == key), None)
        if old is not None and old.position >= offset:
            return
        if value is None:
            if old is not None:
                self._drop(old)
            return
        row = row_of(key, value, offset)._replace(id=0 if old is None else old.id)
        if row.state == KeyState.CHECKS:
            # The half's own record stays as it is: a check costs a small one.
            halves = [(row.at, row.checks, each.id) for each in rows if each.state == KeyState.HALF]
            self._database.executemany("UPDATE records SET at = ?, checks = ? WHERE id = ?", halves)
        if row.state in _OPEN:
            row = self._only(row, [each for each in rows if each.key != key and each.state in _OPEN])
        if old is None:
            self._database.execute(INSERT, (*row[:-1], crc32(text)))
        else:
            self._add(old, -1)
            self._update(row)
        self._add(row, 1)

    def _only(self, row: CachedRecord, others: Sequence[CachedRecord]) -> CachedRecord:
        """Have one key only for an identity: the one that an owner wrote under, else the first."""
        if others and not row.owned:
            return row._replace(state=KeyState.REPEAT)
        for each in others:
            repeat = each._replace(state=KeyState.REPEAT)
            self._add(each, -1)
            self._update(repeat)
            self._add(repeat, 1)
        return row

    def reached(self, position: int) -> None:
        """Note that all before an offset was read; the next `save` keeps it, as nothing is lost without."""
        self.position = max(position, self.position)

    def save(self, position: int, now_ms: int) -> None:
        """Keep what was changed, with the offset of the next record to read."""
        self.reached(position)
        self._database.executemany(
            "INSERT OR REPLACE INTO facts VALUES (?, ?)", [("position", self.position), ("saved_ms", now_ms)]
        )
        self._database.commit()

    def close(self) -> None:
        """Keep nothing more."""
        self._database.close()

    def failed(self, error: Exception) -> None:
        """Keep nothing more. A file that is damaged goes: the log has all of it. One that found no space stays."""
        self.close()
        if not isinstance(error, sqlite3.OperationalError | OSError):
            with contextlib.suppress(OSError):
                self._remove()

    # Questions

    @property
    def discarded(self) -> int:
        """How many halves were discarded and not resumed."""
        return self._rare[KeyState.DISCARDED]

    def find(self, identity: bytes) -> CachedRecord | None:
        """Return the message of an identity, waiting, undecided, discarded or ended."""
        return next((each for each in self._named(identity) if each.state in _OPEN), None)

    def has(self, key: bytes) -> bool:
        """Whether a key has a record."""
        return any(each.key == key for each in self._named(identity_text(key)))

    def of(self, state: KeyState, before: int, limit: int) -> list[CachedRecord]:
        """Rows of a state whose `at` is before a moment, the first ones."""
        if state in _RARE and not self._rare[state]:
            return []
        return self._some("state = ? AND at < ? ORDER BY at LIMIT ?", state, before, limit)

    def due(self, now_ms: int, limit: int, *, only: str = "", without: Collection[str] = ()) -> list[CachedRecord]:
        """Messages that are due, of one topic alone or of all but some."""
        marks = ",".join("?" * len(without))
        if only:
            return self._some("state = 0 AND at <= ? AND topic = ? ORDER BY at LIMIT ?", now_ms, only, limit)
        begin_ms = self._begin_without(without)
        found = self._some(
            f"state = 0 AND at BETWEEN ? AND ? AND topic NOT IN ({marks}) ORDER BY at LIMIT ?",
            *(begin_ms, now_ms, *without, limit),
        )
        self._passed = frozenset(without), max(begin_ms, found[0].at if found else now_ms + 1)
        return found

    def _begin_without(self, without: Collection[str]) -> int:
        """Return before which moment there is nothing that is due to others than these topics."""
        names, begin_ms = self._passed
        return begin_ms if names.issubset(without) else -_ALWAYS

    def due_check(
        self, now_ms: int, group: str, principal: str, *, checks_max: int, but: Collection[bytes]
    ) -> CachedRecord | None:
        """Return the first half of a producer group whose next check is due; None: there is none.

        Args:
            now_ms: Wall clock.
            group: The producer group.
            principal: Not another one's; "": of all.
            checks_max: Not one that was checked this often.
            but: Not one of these identities.
        """
        owned, values = ("AND principal IN ('', ?)", [principal]) if principal else ("", [])
        found = self._database.execute(
            "SELECT id, key FROM records INDEXED BY by_group WHERE state = 4 AND producer_group = ? AND at <= ? "
            f"AND checks < ? {owned} ORDER BY at LIMIT ?",
            (group, now_ms, checks_max, *values, len(but) + 1),
        )
        for row_id, key in found:
            if identity_text(key) not in but:
                return self._some("id = ?", row_id)[0]
        return None

    def overdue_check(self, now_ms: int) -> CachedRecord | None:
        """Return a half, of any producer group, whose next check is due, the first one; None: there is none."""
        return next(iter(self._some("state = 4 AND at <= ? ORDER BY at LIMIT 1", now_ms)), None)

    def has_due_check(self, now_ms: int, group: str, but: Collection[bytes]) -> bool:
        """Whether the check of a half of a producer group is due, but for those of some identities."""
        found = self._database.execute(
            "SELECT key FROM records INDEXED BY by_group WHERE state = 4 AND producer_group = ? AND at <= ? LIMIT ?",
            (group, now_ms, len(but) + 1),
        )
        return any(identity_text(key) not in but for (key,) in found)

    def given_up(self, now_ms: int, checks_max: int, before_ms: int, limit: int) -> list[CachedRecord]:
        """Halves that had all their checks and the time to answer the last, and those made before a moment."""
        if not self._rare[KeyState.HALF]:
            return []
        found = self._some(
            # By its own choice SQLite goes through all halves whose check is due.
            "id IN (SELECT id FROM records INDEXED BY by_checks WHERE state = 4 AND checks >= ? AND at <= ? LIMIT ?)",
            *(checks_max, now_ms, limit),
        )
        old = self._some("state IN (4, 5) AND state = 4 AND made < ? ORDER BY made LIMIT ?", before_ms, limit)
        return list({row.key: row for row in [*found, *old]}.values())[:limit]

    def next_check(self, after_ms: int) -> int | None:
        """Return when the next half is to be checked, after a moment; None: none is."""
        if not self._rare[KeyState.HALF]:
            return None
        return self._number("SELECT MIN(at) FROM records WHERE state = 4 AND at > ?", after_ms)

    def oldest_half(self) -> int | None:
        """Return when the oldest half was made that is not decided, but for discarded ones."""
        return self._number("SELECT MIN(made) FROM records INDEXED BY by_age WHERE state IN (4, 5) AND state = 4")

    def halves(
        self, state: KeyState, begin_ms: int, limit: int, topic: str, group: str = ""
    ) -> list[tuple[int, bytes]]:
        """Return when halves of a topic were made, with their keys, by age; for listings.

        Args:
            state: HALF or DISCARDED.
            begin_ms: None that is older.
            limit: How many at most.
            topic: Of this one.
            group: Only of this producer group; "": of all.
        """
        chosen, values = ("AND producer_group = ?", [group]) if group else ("", [])
        return self._database.execute(
            f"SELECT made, key FROM records WHERE state IN (4, 5) AND state = {state:d} AND made >= ? AND topic = ? "
            f"{chosen} ORDER BY made, key LIMIT ?",
            (begin_ms, topic, *values, limit),
        ).fetchall()

    def overdue(self, now_ms: int) -> int:
        """Return how many messages are due and not delivered; it costs what became due since it was asked before."""
        before_ms, count = self._overdue
        began_ms, ended_ms = sorted((before_ms, now_ms))
        found = self._number("SELECT COUNT(*) FROM records WHERE state = 0 AND at > ? AND at <= ?", began_ms, ended_ms)
        self._overdue = now_ms, count + (found or 0) * (1 if now_ms > before_ms else -1)
        return self._overdue[1]

    def next_due(self, without: Collection[str] = (), until_ms: int = _ALWAYS) -> int | None:
        """Return when the first message is due, but for those of some topics; None: none is until then."""
        marks = ",".join("?" * len(without))
        return self._number(
            f"SELECT MIN(at) FROM records WHERE state = 0 AND at BETWEEN ? AND ? AND topic NOT IN ({marks})",
            *(self._begin_without(without), until_ms, *without),
        )

    def page(self, after: tuple[int, bytes], limit: int, topic: str = "", level: int = -1) -> list[tuple[int, bytes]]:
        """Return due times and keys of waiting messages by due time, from behind one; for listings.

        Args:
            after: That one.
            limit: How many at most.
            topic: Only this one; "": all.
            level: Only of this delay level; 0: of any; -1: all messages.
        """
        chosen, values = _chosen(topic, level)
        return self._database.execute(
            f"SELECT at, key FROM records WHERE state = 0 AND (at, key) > (?, ?) {chosen} ORDER BY at, key LIMIT ?",
            (*after, *values, limit),
        ).fetchall()

    def listed(self, key: bytes) -> CachedRecord | None:
        """Return the message of a key of a page, without its body; None: it waits no more."""
        found = self._database.execute(
            # What is stored behind the value is read through all of it.
            "SELECT key, state, at, topic, principal, owned, position, '', '', 0, 0, 0, id FROM records "
            "INDEXED BY by_name WHERE name = ? AND key = ? AND state = 0",
            (crc32(identity_text(key)), key),
        ).fetchall()
        for row in map(CachedRecord._make, found):
            with self._database.blobopen("records", "value", row.id, readonly=True) as value:
                start = value.read(HEAD_START)
                return row._replace(value=start + value.read(head_size(start)))
        return None

    def levels(self, topic: str = "") -> list[tuple[int, int, int]]:
        """Return each delay level in which messages wait: its number, how many, and when the first one is due."""
        chosen, values = ("AND topic = ?", [topic]) if topic else ("", [])
        return self._database.execute(
            "SELECT level, COUNT(*), MIN(at) FROM records INDEXED BY by_levels "
            f"WHERE level > 0 AND state = 0 {chosen} GROUP BY level",
            values,
        ).fetchall()

    def count_due(self, begin_ms: int, end_ms: int, *, halves: bool, topic: str = "", level: int = -1) -> int:
        """Return how many messages are due within [begin_ms, end_ms), or halves to be checked; as `page`."""
        chosen, values = _chosen(topic, level)
        state = KeyState.HALF if halves else KeyState.WAITING
        index = "by_levels" if level >= 0 else "by_topic" if topic and not halves else "by_time"
        query = (
            f"SELECT COUNT(*) FROM records INDEXED BY {index} WHERE state = {state:d} AND at >= ? AND at < ? {chosen}"
        )
        return self._number(query, begin_ms, end_ms, *values) or 0

    # Parts

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path)
        try:
            database.execute("PRAGMA synchronous = OFF")
            # A node that is killed in the middle of a commit leaves a whole file.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute(f"PRAGMA cache_size = -{_CACHE_KBYTES}")
            database.executescript(TABLES)
        except sqlite3.DatabaseError:
            database.close()
            if self._path == ":memory:" or not self._disk.exists(self._path):
                raise
            self._remove()
            database = sqlite3.connect(self._path)
            database.executescript(TABLES)
        return database

    def _remove(self) -> None:
        if self._path != ":memory:":
            for ending in ("", "-wal", "-shm"):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.remove(self._path + ending)

    def _count(self) -> None:
        self.counts.clear()
        self.undecided.clear()
        self._rare.clear()
        self._passed, self._overdue = (frozenset(), -_ALWAYS), (-_ALWAYS, 0)
        for state, topic, principal, count in self._database.execute(
            "SELECT state, topic, principal, COUNT(*) FROM records WHERE state IN (0, 2, 3, 4, 5) "
            "GROUP BY state, topic, principal"
        ):
            if state in _PENDING:
                self.counts[topic, principal] += count
            if state in _RARE:
                self._rare[state] += count
            if state == KeyState.HALF:
                self.undecided[principal] += count

    def _number(self, query: str, *values: object) -> int | None:
        found: int | None
        [(found,)] = self._database.execute(query, values).fetchall()
        return found

    def _some(self, where: str, *values: object) -> list[CachedRecord]:
        """Return the first rows, at least one, until they have many bytes."""
        rows, size = [], 0
        for each in self._database.execute(f"SELECT {_COLUMNS} FROM records WHERE {where}", values):
            row = CachedRecord._make(each)
            rows.append(row)
            size += len(row.value)
            if size >= READ_BYTES:
                break
        return rows

    def _rows_of_names(self, names: Sequence[int]) -> dict[int, list[CachedRecord]]:
        found: dict[int, list[CachedRecord]] = {}
        for first in range(0, len(names), _NAMES_MAX):
            some = names[first : first + _NAMES_MAX]
            marks = ",".join("?" * len(some))
            for name, *row in self._database.execute(
                f"SELECT name, {_COLUMNS} FROM records WHERE name IN ({marks})", some
            ):
                found.setdefault(name, []).append(CachedRecord._make(row))
        return found

    def _named(self, identity: bytes) -> list[CachedRecord]:
        found = map(CachedRecord._make, self._database.execute(_NAMED, (crc32(identity),)))
        return [each for each in found if each.identity == identity]

    def _update(self, row: CachedRecord) -> None:
        self._database.execute(_UPDATE, (*row[1:3], *row[5:]))

    def _drop(self, row: CachedRecord) -> None:
        self._database.execute("DELETE FROM records WHERE id = ?", (row.id,))
        self._add(row, -1)

    def _add(self, row: CachedRecord, count: int) -> None:
        if row.state == KeyState.WAITING:
            (names, begin_ms), (asked_ms, overdue) = self._passed, self._overdue
            if row.at < begin_ms and row.topic not in names:
                self._passed = names, row.at
            if row.at <= asked_ms:
                self._overdue = asked_ms, overdue + count
        if row.state in _PENDING:
            self.counts[row.topic, row.principal] += count
        if row.state in _RARE:
            self._rare[row.state] += count
        if row.state == KeyState.HALF:
            self.undecided[row.principal] += count


def _chosen(topic: str, level: int) -> tuple[str, list[object]]:
    """Return the condition of a topic, "" for any, and of a delay level: 0 for any of them, -1 for all messages."""
    chosen, values = ("AND topic = ?", list[object]([topic])) if topic else ("", [])
    if level >= 0:
        chosen, values = f"{chosen} AND level {'=' if level else '>'} ? AND level > 0", [*values, level]
    return chosen, values
