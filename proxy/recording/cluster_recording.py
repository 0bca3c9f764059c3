"""Writes where all groups of a Kafka cluster stand to a lag journal, round by round.

The journal is a node's in all: raw samples, minutes and hours, recorded gaps. A round in which the cluster does not
answer is written too, with all that was known before as not known, so that who judges says UNKNOWN and not that all is
well.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from broker.runtime.seams import Clock, Disk
from lag.blocks import BlockGap, BlockReader
from lag.journal.columns import queue_sample
from lag.journal.files import Tier, parse
from lag.journal.reader import JournalQuery, JournalReader
from lag.journal.tiers import TierLimits, Tiers, TierWork
from lag.journal.writer import FILE_MS, JournalOrigin, JournalWriter, WriterLimits
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent
from proxy.recording.cluster_samples import ClusterRound, ClusterSampler
from upstream.kafka.link import KafkaFailure

TIER_SECONDS = 3_600.0
"""How often coarser files are made and old ones deleted."""


class JournalOfOthers(Exception):
    """The folder has another journal: of a node, or of another cluster."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What became of a round.

    Attributes:
        found: What was found.
        failure: Why nothing was; None: it was.
        trouble: Why it is not in the journal; None: it is.
    """

    found: ClusterRound
    failure: KafkaFailure | None
    trouble: str | None


class ClusterRecording:
    """Records one cluster in one folder. Who makes it holds the folder's lock."""

    def __init__(
        self,
        sampler: ClusterSampler,
        *,
        disk: Disk,
        folder: str,
        clock: Clock,
        origin: JournalOrigin,
        every_ms: int,
        tiers: TierLimits | None = None,
    ) -> None:
        """Look at what the folder has, and take up what the last recorder left.

        Args:
            sampler: Looks at the cluster.
            disk: Where.
            folder: The journal's folder; made with the first round.
            clock: Dates rounds.
            origin: Who writes.
            every_ms: How far apart rounds are.
            tiers: How much is kept; as a node does, when absent.

        Raises:
            JournalOfOthers: It has another writer's journal.
        """
        self._sampler = sampler
        self._disk = disk
        self._folder = folder
        self._clock = clock
        self._recall(origin)
        self._journal = JournalWriter(disk, folder, origin, WriterLimits(interval_ms=every_ms))
        self._tiers = Tiers(disk, folder, tiers or TierLimits())
        self._tiers_at = clock.monotonic()
        self._journal.note(LagEvent(time_ms=clock.wall_ms(), kind=EventKind.START, detail="recording begins"))

    def round(self) -> Recorded:
        """Look, and write what was found."""
        failure: KafkaFailure | None = None
        try:
            found = self._sampler.round()
        except KafkaFailure as error:
            failure, found = error, self._sampler.unknown()
        for event in found.events:
            self._journal.note(event)
        rows = [((key.group, key.topic, key.queue), sample) for key, sample in found.queues]
        self._journal.write(found.time_ms, rows)
        trouble = self._journal.trouble
        if self._clock.monotonic() >= self._tiers_at:
            self._tiers_at = self._clock.monotonic() + TIER_SECONDS
            self._tidy()
            trouble = trouble or self._tiers.trouble
        return Recorded(found, failure, trouble)

    def close(self) -> None:
        """Note that recording ends, and end the file."""
        now_ms = self._clock.wall_ms()
        self._journal.note(LagEvent(time_ms=now_ms, kind=EventKind.STOP, detail="recording was stopped"))
        self._journal.close(now_ms)

    def _tidy(self) -> None:
        work = TierWork(self._tiers, self._clock, self._disk)
        work.begin(self._journal.current)
        while work.step():
            pass

    def _recall(self, origin: JournalOrigin) -> None:
        """Take up the newest sample of each row. Raises JournalOfOthers."""
        newest = max(
            (each for name in self._disk.list(self._folder) if (each := parse(name)) is not None), default=None
        )
        if newest is None:
            return
        reader = BlockReader(self._disk, f"{self._folder}/{newest.name}")
        reader.close()
        if reader.head is not None and (reader.head.cluster, reader.head.node) != (origin.cluster, origin.node):
            raise JournalOfOthers(
                f"{self._folder} has the lag journal of {reader.head.node} in {reader.head.cluster}, not of "
                f"{origin.node} in {origin.cluster}; pass another folder"
            )
        now_ms = self._clock.wall_ms()
        since_ms = (now_ms - LagLimits().window_ms) // FILE_MS * FILE_MS
        journal = JournalReader(self._disk, self._folder)
        # The newest file first: the recorder may have been off for longer than a window.
        for block in chain(journal.newest(), journal.blocks(JournalQuery(since_ms=since_ms, until_ms=now_ms))):
            if block is None or isinstance(block, BlockGap) or block.tier is not Tier.RAW:
                continue
            for (group, topic, queue), time_ms, row in block.queues:
                self._sampler.recall(group, topic, queue, queue_sample(time_ms, row))
