"""Alarms from the journals of many nodes: rounds in batches, each batch once, whatever is killed.

All that a batch changes (alarms, what is to be told, up to where each node was seen, the batch's number) is written in
one step. A batch that comes again after a kill is passed over; what was to be told of it and was not is told then. What
a place took is written as soon as it did, but for the file, which says itself what it has.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from broker.runtime.seams import Disk
from broker.runtime.steps import run_now
from lag.alarms.findings import LimitsOf, Wanted, everything, judging
from lag.alarms.model import SINKS
from lag.alarms.places import Place
from lag.alarms.rounds import AlarmPolicy, take_round, take_silence
from lag.alarms.state import AlarmFile
from lag.alarms.windows import Windows
from lag.blocks import Gap
from lag.journal.columns import queue_sample
from lag.journal.files import Tier
from lag.journal.reader import JournalReader
from lag.journal.reader import Wanted as Asked
from lag.rules.limits import Limits
from lag.samples import LagEvent, QueueKey, QueueSample

LATE_MS: Final = 600_000
"""A round that is older than its node's newest by more than this is left out."""
_BATCH: Final = "batch"
Whose = tuple[str, str]
"""Cluster and node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenRound:
    """A round as a journal has it; `samples` by group, topic and number of the queue."""

    whose: Whose
    time_ms: int
    samples: Sequence[tuple[tuple[str, str, int], QueueSample]]
    events: Sequence[LagEvent]


class Watcher:
    """Judges rounds and tells alarms to places.

    Attributes:
        late: Rounds that came too late, so far.
        trouble: Why the state was not believed; null: it was, or there was none.

    Args:
        disk: Where the state is.
        folder: Its folder.
        places: By name: `file`, `topic`, `webhook`. What an earlier process was to tell another one is forgotten.
        policy: What is an alarm.
        limits_of: Thresholds of a group and topic.
        wanted: What is left out.
    """

    def __init__(
        self,
        disk: Disk,
        folder: str,
        places: Mapping[str, Place],
        *,
        policy: AlarmPolicy,
        limits_of: LimitsOf = lambda _group, _topic: Limits(),
        wanted: Wanted = everything,
    ) -> None:
        self.late = 0
        self._file = AlarmFile(disk, folder)
        self._places = places
        self._policy = policy
        self._limits_of = limits_of
        self._wanted = wanted
        self._windows: dict[Whose, Windows] = {}
        self.state = self._file.load()
        self.trouble = self._file.trouble
        for name in SINKS:
            if name not in places:
                self.state.took(name, frozenset(event["key"] for event in self.state.waiting(name)))
        self._deliver()

    def waiting(self) -> dict[str, tuple[int, str]]:
        """Return, by place, how much it has not taken and why; those that have all are left out."""
        found = {}
        for name, place in self._places.items():
            count = len(self.state.waiting(name))
            if count:
                found[name] = count, place.trouble or "it is under way"
        return found

    def settle(self, seconds: float) -> None:
        """Wait so long for places that tell beside. Raises OSError."""
        for place in self._places.values():
            place.settle(seconds)
        self._deliver()

    def close(self) -> None:
        """Close the places; what they have not taken stays in the state, for the next process."""
        for place in self._places.values():
            place.close()

    def recall(self, disk: Disk, folders: Sequence[str]) -> None:
        """Fill the windows with what journals have of before the last batch: trends go on where they were."""
        seen = self._seen()
        if not seen:
            return
        since_ms = min(seen.values()) - Limits().window_ms
        for folder in folders:
            for block in JournalReader(disk, folder).blocks(Asked(since_ms=since_ms)):
                if isinstance(block, Gap) or block.tier is not Tier.RAW:
                    continue
                whose = (block.head.cluster, block.head.node)
                last_ms = seen.get(whose)
                if last_ms is not None and last_ms - Limits().window_ms <= block.time_ms <= last_ms:
                    samples = [(key, queue_sample(time_ms, row)) for key, time_ms, row in block.queues]
                    self._look(SeenRound(whose=whose, time_ms=block.time_ms, samples=samples, events=block.events))

    def take(self, number: int, rounds: Sequence[SeenRound]) -> None:
        """Take a batch; nothing when it was taken before.

        Args:
            number: Batches count up.
            rounds: Those of a node in the order in which it made them.

        Raises:
            OSError: The disk refused: nothing of the batch counts for who starts anew.
        """
        if number > self.state.marks.get(_BATCH, -1):
            for each in rounds:
                self._take(each)
            self.state.marks[_BATCH] = number
            self._file.save(self.state)
        self._deliver()

    def look_at_clock(self, now_ms: int) -> None:
        """Raise what follows from time alone: nodes that fell silent. Raises OSError."""
        changed = False
        for whose, last_ms in self._seen().items():
            changed |= take_silence(self.state, whose, last_ms, now_ms, self._policy)
        if changed:
            self._file.save(self.state)
        self._deliver()

    def _take(self, seen: SeenRound) -> None:
        mark = json.dumps(seen.whose)
        newest_ms = self.state.marks.get(mark, seen.time_ms)
        if seen.time_ms < newest_ms - LATE_MS:
            self.late += 1
            return
        windows = self._look(seen)
        steps = judging(windows, seen.time_ms, whose=seen.whose, limits_of=self._limits_of, wanted=self._wanted)
        take_round(self.state, run_now(steps), self._policy)
        self.state.marks[mark] = max(newest_ms, seen.time_ms)

    def _look(self, seen: SeenRound) -> Windows:
        windows = self._windows.setdefault(seen.whose, Windows())
        cluster, node = seen.whose
        windows.round(
            (QueueKey(cluster=cluster, node=node, group=group, topic=topic, queue=queue), sample)
            for (group, topic, queue), sample in seen.samples
        )
        for event in seen.events:
            windows.note(event)
        return windows

    def _seen(self) -> Mapping[Whose, int]:
        """Moment of the newest round of each node."""
        marks = {name: at for name, at in self.state.marks.items() if name != _BATCH}
        return {(str(pair[0]), str(pair[1])): at for name, at in marks.items() if len(pair := json.loads(name)) == 2}

    def _deliver(self) -> None:
        unwritten = False
        for name, place in self._places.items():
            taken = self.state.took(name, place.tell(self.state.waiting(name)))
            unwritten |= taken and name != "file"
        if unwritten:
            self._file.save(self.state)
