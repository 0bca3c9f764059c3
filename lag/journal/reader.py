"""JournalReader: all files of a journal's folder in order, and what is missing among them.

It raises for nothing that files hold. What could not be read, was never written, or is of another program, is a
`BlockGap` in its place between the rows, so that a rule which looks over one can say INCOMPLETE.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from broker.runtime.seams import Disk
from lag.blocks import BlockGap, FileHead, GapKind
from lag.journal.columns import Key, queue_sample, scheduled_sample
from lag.journal.files import SPARE_SUFFIX, WIDTH_MS, JournalFile, Tier, live_files, parse
from lag.journal.scan import Block, ScanPlace, scan
from lag.journal.summaries import QueueSummary, ScheduledSummary, queue_summary, scheduled_summary
from lag.samples import LagEvent, QueueKey, QueueSample, ScheduledSample

SLACK_MS: Final = 600_000
"""A row's moment is at most so far from its snapshot's: a snapshot takes milliseconds, an event waits for the next."""


class QueueRow(NamedTuple):
    """A sample; (cluster and node of the key, epoch, sequence) name its snapshot."""

    key: QueueKey
    sample: QueueSample
    epoch: int
    sequence: int


class SummaryRow(NamedTuple):
    """What is kept of a queue's samples of a minute or an hour; epoch and sequence are those of the last of them."""

    key: QueueKey
    summary: QueueSummary
    epoch: int
    sequence: int
    tier: Tier


class ScheduledRow(NamedTuple):
    """What waits by its own time in one node."""

    cluster: str
    node: str
    sample: ScheduledSample
    epoch: int
    sequence: int


class ScheduledSummaryRow(NamedTuple):
    """What is kept of that of a minute or an hour."""

    cluster: str
    node: str
    summary: ScheduledSummary
    epoch: int
    sequence: int
    tier: Tier


class EventRow(NamedTuple):
    """What happened in one node."""

    cluster: str
    node: str
    event: LagEvent
    epoch: int
    sequence: int


Item = QueueRow | SummaryRow | ScheduledRow | ScheduledSummaryRow | EventRow | BlockGap
"""What a reader yields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalQuery:
    """What is asked for.

    Attributes:
        since_ms: Rows of this moment or later; null: all.
        until_ms: Rows before this moment; null: all.
        groups: Of these groups; null: of all.
        topics: Of these topics; null: of all.
        finest: Summaries will do, at this fineness, where there are such.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    groups: frozenset[str] | None = None
    topics: frozenset[str] | None = None
    finest: Tier = Tier.RAW

    def takes_moment(self, time_ms: int, slack_ms: int = 0) -> bool:
        """Whether a moment, or one so far from it, is asked for."""
        return (self.since_ms is None or time_ms + slack_ms >= self.since_ms) and (
            self.until_ms is None or time_ms - slack_ms < self.until_ms
        )

    def is_later(self, time_ms: int) -> bool:
        """Whether a moment is not before what is asked for."""
        return self.since_ms is None or time_ms >= self.since_ms

    def is_past(self, time_ms: int) -> bool:
        """Whether a moment is behind what is asked for."""
        return self.until_ms is not None and time_ms >= self.until_ms

    def takes_name(self, group: str, topic: str) -> bool:
        """Whether rows or events of this name are asked for; "" of an event means all."""
        return (self.groups is None or not group or group in self.groups) and (
            self.topics is None or not topic or topic in self.topics
        )


class JournalReader:
    """Reads a folder; also while its node writes.

    Args:
        disk: Where; one that is open for reading alone will do.
        folder: The journal's folder.
    """

    def __init__(self, disk: Disk, folder: str) -> None:
        self._disk = disk
        self._folder = folder

    def read(self, wanted: JournalQuery | None = None) -> Iterator[Item]:
        """Yield samples (or summaries, where nothing finer is kept), events and gaps, in the order of writing.

        Args:
            wanted: What is asked for; None: all.
        """
        wanted = wanted or JournalQuery()
        keys: dict[tuple[str, str, Key], QueueKey] = {}
        for block in self.blocks(wanted):
            if isinstance(block, BlockGap):
                yield block
                continue
            cluster, node, tier = block.head.cluster, block.head.node, block.tier
            epoch, sequence = block.epoch, block.sequence
            for key, time_ms, row in block.queues:
                if not wanted.takes_moment(time_ms) or not wanted.takes_name(key[0], key[1]):
                    continue
                known = keys.get((cluster, node, key))
                if known is None:
                    group, topic, queue = key
                    known = QueueKey(cluster=cluster, node=node, group=group, topic=topic, queue=queue)
                    keys[cluster, node, key] = known
                if tier is Tier.RAW:
                    yield QueueRow(known, queue_sample(time_ms, row), epoch, sequence)
                else:
                    yield SummaryRow(known, queue_summary(time_ms, row), epoch, sequence, tier)
            for key, time_ms, row in block.scheduled:
                # What waits is of no group; it is returned for its topic, or for the whole node.
                if not wanted.takes_moment(time_ms) or not wanted.takes_name("", key[1]):
                    continue
                if tier is Tier.RAW:
                    yield ScheduledRow(cluster, node, scheduled_sample(key, time_ms, row), epoch, sequence)
                else:
                    summary = scheduled_summary(key, time_ms, row)
                    yield ScheduledSummaryRow(cluster, node, summary, epoch, sequence, tier)
            for event in block.events:
                if wanted.takes_moment(event.time_ms) and wanted.takes_name(event.group, event.topic):
                    yield EventRow(cluster, node, event, epoch, sequence)

    def blocks(
        self, wanted: JournalQuery | None = None, *, by_columns: bool | None = False
    ) -> Iterator[Block | BlockGap]:
        """Yield whole snapshots and gaps; of `wanted` times (by snapshot, with some slack) and fineness count.

        With `by_columns` rows of queues are in `pieces`; with None they are not decoded.
        """
        return (each for each in self.steps(wanted, by_columns=by_columns) if each is not None)

    def steps(
        self, wanted: JournalQuery | None = None, *, by_columns: bool | None = False
    ) -> Iterator[Block | BlockGap | None]:
        """Yield as `blocks`, and None after each small piece of work besides: for who has other work in between."""
        wanted = wanted or JournalQuery()
        place = ScanPlace()
        try:
            names = self._disk.list(self._folder)
        except OSError as error:
            yield BlockGap(GapKind.UNREADABLE, self._folder, 0, f"{self._folder} cannot be read: {error}")
            return
        files: list[JournalFile] = []
        for name in names:
            file = parse(name)
            if file is not None:
                files.append(file)
            elif not name.endswith(SPARE_SUFFIX):
                path = f"{self._folder}/{name}"
                yield BlockGap(GapKind.FOREIGN, path, 0, f"{path} is not a file of this journal, by its name")
        for file in live_files(files, wanted.finest):
            yield from self._file(file, place, wanted, by_columns)
        yield from place.gaps(None)

    def interval_ms(self) -> int:
        """Return how far apart samples are meant to be, by the newest raw file; 0: it does not say."""
        return next((block.head.interval_ms for block in self.newest() if block is not None), 0)

    def newest(self) -> Iterator[Block | None]:
        """Yield the blocks of the newest raw file, oldest first, and None after each small piece of work besides."""
        try:
            files = [file for name in self._disk.list(self._folder) if (file := parse(name)) and file.tier is Tier.RAW]
        except OSError:
            return
        if files:
            path = f"{self._folder}/{max(files).name}"
            yield from scan(self._disk, path, Tier.RAW, ScanPlace(), lambda head: True)

    def _file(
        self, file: JournalFile, place: ScanPlace, wanted: JournalQuery, by_columns: bool | None
    ) -> Iterator[Block | BlockGap | None]:
        slack_ms = max(SLACK_MS, WIDTH_MS[file.tier])

        def is_wanted(head: FileHead) -> bool:
            if not wanted.is_later(head.last_ms + slack_ms):
                place.missing.clear()
                return False
            return not wanted.is_past(head.first_ms - slack_ms)

        path = f"{self._folder}/{file.name}"
        for block in scan(self._disk, path, file.tier, place, is_wanted, by_columns=by_columns):
            if block is None:
                yield None
                continue
            before_ms = place.time_ms
            gaps = place.reach(block, path)
            if wanted.is_later(block.time_ms) and (before_ms is None or not wanted.is_past(before_ms)):
                # Else it ended before what is asked for, or began behind it.
                yield from gaps
            yield block if wanted.takes_moment(block.time_ms, slack_ms) else None
