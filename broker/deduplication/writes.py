"""Writes of many tasks that may be run again: which partitions each one has, so that none is stored in two divisions.

A task numbers the rows of its partition (`broker.deduplication.window`), so a repeat of the partition stores no row
twice. That is not enough: a run that divides the same rows into other partitions gives them other numbers. So each task
declares its partition, with the number of its rows and their digest, before it sends the first one.

Data: for each of the last WRITES_MAX writes the batch, and either its partitions, each with rows, digest, the run that
declared it last and since when it is known, or, of an ended batch, the digest of all partitions.

=====================  ==================================================  ======================================
state of the write     declaration                                         answer
=====================  ==================================================  ======================================
unknown, or an earlier a partition                                         begun with it: SEND
batch
begun                  a known partition, same rows and digest             its run is noted: SEND, or FORGOTTEN
                                                                           where its rows may be stored and their
                                                                           numbers are not known any more
begun                  a known partition, other rows or digest             DIFFERS
begun                  another partition, this run declared all others     known from now on: SEND
begun                  another partition, an earlier run declared others   WAITS until this run declared them, too
begun                  the end, this run declared all partitions           ended: SKIP
ended                  the same digest at the end                          SKIP
ended                  another digest at the end                           DIFFERS
ended, a later batch   a partition                                         SKIP: nothing is to be sent
=====================  ==================================================  ======================================

Why this is exact, where a batch has the same rows each time: rows are sent after their partition was declared, and a
partition is added only by a run whose division has all partitions declared before. So all declared partitions are
always parts of one division: no row is in two of them. The end is accepted from a run that declared every partition,
and each of its tasks has sent its rows: no row is missing.
"""

from __future__ import annotations

import enum
import errno
from collections import OrderedDict
from collections.abc import Callable
from typing import Any, NamedTuple

import structlog

from broker.deduplication.window import DeduplicationWindow
from broker.errors import StoreUnreadable
from broker.runtime.bundle import Runtime
from broker.runtime.file_writes import FileWrite
from broker.runtime.sealed_file import SealedFile
from broker.runtime.store_metrics import FILES_DAMAGED
from broker.store import Store

FILE = "pyddmq/writes.json"
WRITES_MAX = 1_000
PARTITIONS_MAX = 10_000
"""Of one batch."""

log = structlog.get_logger()


class WriteVerdict(enum.Enum):
    """What a task is to do."""

    SEND = "send"
    SKIP = "skip"
    FORGOTTEN = "forgotten"
    DIFFERS = "differs"
    WAITS = "waits"


class Declaration(NamedTuple):
    """What a task says of its partition before it sends, or a driver of all partitions at the end.

    Attributes:
        name: The write's, the same in each run.
        batch: Its number; a later one is a higher one.
        run: Names the run: another one for each time that the batch is run.
        partition: From 0 on; at the end, the number of partitions that have rows.
        rows: How many rows it has.
        digest: Of the rows, in order.
        ends: Whether all partitions are sent.
        producer: Under whose name the rows are numbered.
    """

    name: str
    batch: int
    run: str
    partition: int
    rows: int
    digest: str
    ends: bool
    producer: bytes


class _Partition:
    __slots__ = ("digest", "rows", "run", "since_ms")

    def __init__(self, rows: int, digest: str, run: str, since_ms: int) -> None:
        self.rows, self.digest, self.run, self.since_ms = rows, digest, run, since_ms


class _Batch:
    """The last batch of a write; `ended` is the digest of all its partitions, None while it is begun."""

    __slots__ = ("ended", "number", "partitions")

    def __init__(self, number: int, ended: str | None = None) -> None:
        self.number, self.ended = number, ended
        self.partitions: dict[int, _Partition] = {}


class Writes:
    """The rules, in memory. No I/O.

    Attributes:
        version: Counts changes.
    """

    def __init__(self, window: DeduplicationWindow) -> None:
        self.version = 0
        self._window = window
        self._batches: OrderedDict[str, _Batch] = OrderedDict()

    def declare(self, said: Declaration, now_ms: int) -> tuple[WriteVerdict, str]:
        """Return what is to be done, and why in a sentence; `now_ms` is the store's time."""
        batch = self._batches.get(said.name)
        if batch is not None:
            self._batches.move_to_end(said.name)
        if batch is None or batch.number < said.batch:
            batch = _Batch(said.batch, said.digest if said.ends else None)
            self._batches[said.name] = batch
            self._batches.move_to_end(said.name)
            self.version += 1
            while len(self._batches) > WRITES_MAX:
                self._forget_one()
            if said.ends:
                return WriteVerdict.SKIP, "ended"
        if batch.number > said.batch:
            return WriteVerdict.SKIP, f"batch {batch.number} has begun"
        if batch.ended is not None:
            if said.ends and said.digest != batch.ended:
                return (
                    WriteVerdict.DIFFERS,
                    f"batch {said.batch} was stored before, with other rows or other partitions",
                )
            return WriteVerdict.SKIP, f"batch {said.batch} is stored"
        return self._end(batch, said) if said.ends else self._partition(batch, said, now_ms)

    def _partition(self, batch: _Batch, said: Declaration, now_ms: int) -> tuple[WriteVerdict, str]:
        known = batch.partitions.get(said.partition)
        if known is None:
            others = sorted(at for at, each in batch.partitions.items() if each.run != said.run)
            if others:
                numbers = ", ".join(map(str, others[:10]))
                return WriteVerdict.WAITS, (
                    f"batch {said.batch} was begun by an earlier run: partition {said.partition} waits "
                    f"until this run has repeated partition {numbers}"
                )
            batch.partitions[said.partition] = _Partition(said.rows, said.digest, said.run, now_ms)
            self.version += 1
            return WriteVerdict.SEND, "new"
        if (known.rows, known.digest) != (said.rows, said.digest):
            return WriteVerdict.DIFFERS, (
                f"partition {said.partition} of batch {said.batch} was begun with {known.rows} rows, and this run has "
                f"{said.rows} rows there{'' if known.rows != said.rows else ' that differ'}"
            )
        if known.run != said.run:
            known.run = said.run
            self.version += 1
        window = self._window
        sure_ms = max(now_ms - window.limits.silence_ms, window.evicted_ms + 1)
        if known.since_ms < sure_ms and window.next_of(said.producer) is None:
            return (
                WriteVerdict.FORGOTTEN,
                f"rows of partition {said.partition} of batch {said.batch} may be stored already",
            )
        return WriteVerdict.SEND, "again"

    def _end(self, batch: _Batch, said: Declaration) -> tuple[WriteVerdict, str]:
        own = sum(each.run == said.run for each in batch.partitions.values())
        if not own == len(batch.partitions) == said.partition:
            return WriteVerdict.DIFFERS, (
                f"batch {said.batch} ends with {said.partition} partitions that have rows, and "
                f"{len(batch.partitions)} were begun, {own} of them by this run"
            )
        batch.ended = said.digest
        batch.partitions = {}
        self.version += 1
        return WriteVerdict.SKIP, "ended"

    def _forget_one(self) -> None:
        """Forget the write that was silent longest, an ended one before any that is begun."""
        name = next((name for name, each in self._batches.items() if each.ended is not None), None)
        self._batches.pop(name if name is not None else next(iter(self._batches)))

    def saved(self) -> list[Any]:
        """Return all of it as JSON."""
        return [
            [
                name,
                batch.number,
                batch.ended,
                [[at, each.rows, each.digest, each.run, each.since_ms] for at, each in batch.partitions.items()],
            ]
            for name, batch in self._batches.items()
        ]

    def restore(self, saved: list[Any]) -> None:
        """Take what `saved` returned. Raises TypeError or ValueError: it is something else."""
        for name, number, ended, partitions in saved:
            batch = self._batches[name] = _Batch(int(number), ended)
            batch.partitions = {int(at): _Partition(*each) for at, *each in partitions}


class WriteLedger:
    """`Writes` of a store, durable before a task is answered."""

    def __init__(self, store: Store, runtime: Runtime, window: DeduplicationWindow) -> None:
        """Read what the file has; a damaged one is counted and begun again."""
        self._store = store
        self._writes = Writes(window)
        self._file = SealedFile(runtime.disk, f"{store.root}/{FILE}")
        self._waiting: list[Callable[[OSError | None], None]] = []
        self._saved = 0
        self._is_under_way = False
        try:
            self._writes.restore(self._file.load() or [])
        except (StoreUnreadable, TypeError, ValueError) as error:
            self._writes = Writes(window)
            runtime.metrics.counter(FILES_DAMAGED, FILE).add()
            log.error("writes_damaged", path=self._file.path, why=str(error))

    def declare(self, said: Declaration, done: Callable[[WriteVerdict, str], None]) -> None:
        """Call `done` with what is to be done when that is durable; with WAITS when it could not be written."""
        verdict, text = self._writes.declare(said, self._store.store_ms)
        if self._saved == self._writes.version:
            done(verdict, text)
            return

        def saved(error: OSError | None) -> None:
            if error is None:
                done(verdict, text)
            else:
                done(WriteVerdict.WAITS, f"{FILE} cannot be written: {error.strerror or error}")

        self._waiting.append(saved)
        if not self._is_under_way:
            self._is_under_way = True
            self._store.file_writes.add(self._saving(), self._dropped)

    def _dropped(self) -> None:
        self._is_under_way = False
        # A store that was abandoned, as if killed, sends no answers.
        if self._store.failed is not None:
            self._answer(len(self._waiting), OSError(errno.EIO, "the store has failed"))

    def _saving(self) -> FileWrite:
        """Write the file until all who wait are answered; those who come together share a write."""
        while self._waiting:
            count, version, failed = len(self._waiting), self._writes.version, None
            try:
                self._make_rows_durable()
                yield from self._file.writing(self._writes.saved())
                self._saved = version
            except OSError as error:
                failed = error
            self._answer(count, failed)
        self._is_under_way = False

    def _answer(self, count: int, error: OSError | None) -> None:
        """Answer those who have waited longest."""
        answered, self._waiting = self._waiting[:count], self._waiting[count:]
        for each in answered:
            each(error)

    def _make_rows_durable(self) -> None:
        """Under `async` they are not on the disk yet, and a batch that has ended is not sent again. Raises OSError."""
        try:
            self._store.make_durable()
        except OSError as error:
            self._store.writes.fail("making the rows of a write durable", error)
            raise
