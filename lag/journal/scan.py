"""One file of the journal, read in small steps; and what is missing between its snapshots.

Rows of a block are given when the whole block was decoded: a damaged one gives none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from broker.runtime.seams import Disk
from lag.blocks import BlockGap, BlockReader, FileHead, FileKind, GapKind
from lag.journal.column_rows import Piece
from lag.journal.columns import QUEUES, SCHEDULED, Key, Row
from lag.journal.files import Tier
from lag.journal.snapshots import SnapshotDecoder
from lag.journal.summaries import QUEUE_SUMMARIES, SCHEDULED_SUMMARIES
from lag.samples import LagEvent

SILENT_INTERVALS: Final = 3
"""Snapshots further apart than so many intervals are a gap."""
STEP_ROWS: Final = 50
"""Rows that a step decodes: some tenths of a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A snapshot, or the summaries of a minute or an hour, decoded: for who reads columns.

    Attributes:
        head: Whose it is.
        tier: How fine it is.
        epoch: The start that wrote it.
        time_ms: Its moment; of summaries that of the minute's or hour's begin.
        sequence: Its number in the epoch; of summaries that of the last snapshot in them.
        queues: (group, topic, queue), moment, values in the order of `QUEUE_COLUMNS` (`QUEUE_SUMMARIES`); a row that is
            like the one before of its queue is the same object. Empty where they were asked for by columns.
        pieces: The same rows by columns, where that was asked for.
        scheduled: (kind, topic, level), moment, values in the order of `SCHEDULED_COLUMNS` (`SCHEDULED_SUMMARIES`).
        events: What happened.
        missing: What is missing before it, in the files that summaries were made from.
        is_first: It is the first of its file.
    """

    head: FileHead
    tier: Tier
    epoch: int
    time_ms: int
    sequence: int
    queues: list[tuple[Key, int, Row]]
    pieces: list[Piece]
    scheduled: list[tuple[Key, int, Row]]
    events: list[LagEvent]
    missing: list[BlockGap]
    is_first: bool


@dataclass(slots=True)
class ScanPlace:
    """Where a reading is, and what is missing there."""

    epoch: int | None = None
    time_ms: int | None = None
    sequence: int = 0
    missing: list[BlockGap] = field(default_factory=list)

    def gaps(self, to_ms: int | None) -> list[BlockGap]:
        """Take what is missing before the next snapshot, which is of `to_ms`."""
        missing, self.missing = self.missing, []
        return [each._replace(from_ms=self.time_ms, to_ms=to_ms) for each in missing]

    def reach(self, block: Block, path: str) -> list[BlockGap]:
        """Go on to a block of a file; return what is missing before it."""
        if not self.missing:
            # A damage says that something is missing, without its count.
            self._compare(block, path)
        gaps = self.gaps(block.time_ms) + block.missing
        self.epoch, self.time_ms, self.sequence = block.epoch, block.time_ms, block.sequence
        return gaps

    def _compare(self, block: Block, path: str) -> None:
        if self.time_ms is None or (block.tier is not Tier.RAW and not block.is_first):
            # Within a file of summaries, what is missing is written down.
            return
        interval_ms, passed_ms = block.head.interval_ms, block.time_ms - self.time_ms
        lost = block.sequence - self.sequence - 1
        if block.tier is Tier.RAW and self.epoch == block.epoch and lost > 0:
            self.missing.append(BlockGap(GapKind.DROPPED, path, 0, f"{lost} snapshots could not be written"))
        elif interval_ms and passed_ms > SILENT_INTERVALS * interval_ms:
            self.missing.append(BlockGap(GapKind.SILENT, path, 0, f"nothing was recorded for {passed_ms // 1000} s"))


def scan(
    disk: Disk,
    path: str,
    tier: Tier,
    place: ScanPlace,
    is_wanted: Callable[[FileHead], bool],
    *,
    by_columns: bool | None = False,
) -> Iterator[Block | None]:
    """Yield a file's blocks, and None between two steps; what keeps it from being read goes to `place.missing`.

    Args:
        disk: Where.
        path: The file.
        tier: What its name says that it is.
        place: Where the reading is; the caller has it `reach` each block.
        is_wanted: Whether a file with this head is to be read.
        by_columns: Whether blocks have `pieces` in place of `queues`; there are no steps within one then. None: they
            have neither, and rows of queues are not decoded.
    """
    file = BlockReader(disk, path)
    try:
        head = file.head
        if head is not None and head.kind != FileKind(tier):
            reason = f"{path} is of kind {head.kind.name}, which its name does not say"
            place.missing.append(BlockGap(GapKind.FOREIGN, path, 0, reason))
            return
        if head is not None and is_wanted(head):
            for _, block in _blocks(file, head, tier, by_columns):
                yield block
        if file.damage is not None:
            place.missing.append(BlockGap(file.damage.kind, path, file.damage.position, file.damage.reason))
    finally:
        file.close()


def scan_part(disk: Disk, path: str, begin: int, end: int, *, by_columns: bool) -> Iterator[tuple[int, Block]]:
    """Yield the blocks of a raw file that begin in [begin, end), each with the byte at which it begins.

    Rows before them are read, too: rows are differences from those before. A file that cannot be read gives none.
    `by_columns` is as in `scan`.
    """
    file = BlockReader(disk, path)
    try:
        if file.head is None or file.head.kind is not FileKind.RAW:
            return
        for at, block in _blocks(file, file.head, Tier.RAW, by_columns):
            if at >= end:
                return
            if block is not None and at >= begin:
                yield at, block
    finally:
        file.close()


def rows_of_file(file: BlockReader) -> int:
    """Return about how many rows of queues a file has: in each block as many as in the first or the last one."""
    decoder, first, last, blocks = SnapshotDecoder(), b"", b"", 0
    for last in file:
        first, blocks = first or last, blocks + 1
    try:
        return (
            blocks * max(decoder.count(decoder.open(payload)) for payload in (first, last) if payload) if blocks else 0
        )
    except ValueError:
        return 0


def _blocks(
    file: BlockReader, head: FileHead, tier: Tier, by_columns: bool | None
) -> Iterator[tuple[int, Block | None]]:
    """Yield a file's blocks, and None between two steps, each with the byte at which the block begins."""
    tables = (QUEUES, SCHEDULED) if tier is Tier.RAW else (QUEUE_SUMMARIES, SCHEDULED_SUMMARIES)
    decoder = SnapshotDecoder(*tables)
    at, is_first = file.position, True
    for payload in file:
        try:
            snapshot = decoder.open(payload)
            queues = []
            pieces = decoder.pieces(snapshot) if by_columns else []
            for row in decoder.queues(snapshot) if by_columns is False else ():
                queues.append(row)
                if not len(queues) % STEP_ROWS:
                    yield at, None
            block = Block(
                head=head,
                tier=tier,
                epoch=head.epoch if snapshot.epoch is None else snapshot.epoch,
                time_ms=snapshot.time_ms,
                sequence=snapshot.sequence,
                queues=queues,
                pieces=pieces,
                scheduled=list(decoder.scheduled(snapshot)),
                events=decoder.events(snapshot),
                missing=decoder.missing(snapshot),
                is_first=is_first,
            )
        except ValueError as error:
            file.fail(at, f"{error}")
            return
        yield at, block
        at, is_first = file.position, False
