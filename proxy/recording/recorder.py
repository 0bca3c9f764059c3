"""Recorder: notes every some seconds where all groups of a node stand, and hands that to the lag journal.

A round is made in steps of about a millisecond: between two of them the loop serves others. The next one is
due `every` after it, up to a tenth sooner or later, so that the nodes of a cluster do not all do so together. With very
many queues it is later: rounds take `SHARE` of the loop's time at most. Whatever goes wrong, the node continues without
that round, and says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Generator, Iterable
from dataclasses import dataclass

from broker.log.durability import AwaitedSteps
from broker.retention import ExpiringSegment, Relocation
from broker.runtime.bundle import Runtime
from broker.runtime.later import Later
from broker.runtime.metrics import declare
from broker.runtime.seams import Clock, Scheduler
from broker.runtime.steps import StepsEnd, step
from broker.store import Store
from conf import Config
from conf.sections.lag import LagConfig
from conf.sections.lag import Tier as TierName
from lag.blocks import BlockGap
from lag.journal.columns import queue_sample
from lag.journal.files import Tier
from lag.journal.reader import JournalQuery, JournalReader
from lag.journal.scan import Block
from lag.journal.tiers import TierLimits, Tiers, TierWork
from lag.journal.writer import FILE_MS, FOLDER, JournalOrigin, JournalWriter, WriterLimits
from lag.rules.waiting_rules import WaitingLag, judge_waiting
from lag.samples import EventKind, LagEvent, QueueKey, QueueSample, ScheduledSample
from lag.verdicts.changes import SETTLED_MS
from lag.verdicts.windows import NodeWindows
from proxy.recording.in_force import InForce
from proxy.recording.judging import QueueJudge
from proxy.recording.limits import limits_of_config, window_ms_of
from proxy.recording.queue_samples import QueueSampler
from proxy.recording.scheduled_samples import ScheduledSampler
from proxy.recording.verdicts import NodeVerdicts

# What happened to a node and its groups between two rounds: reported by those who do it, or seen by comparing rounds.


CLOCK_STEP_MS = 1_000
"""A wall clock that moved by more than this against the monotonic one was stepped."""
EVENTS_MAX = 1_000
"""Events of one round; of more the first are kept, and one of all queues of a topic says how many are left out."""
OMITTED_MAX = 100
"""Topics of which that is said, each by itself."""
DETAIL_CHARS_MAX = 200
RECENT_MAX = 100
"""Events that are kept after a round took them."""
_QUEUES_NAMED = 3


class Notes:
    """Gathers the events of one node until a round takes them.

    Args:
        clock: Dates them.

    Attributes:
        recent: The last events since the start, the newest last.
    """

    def __init__(self, clock: Clock) -> None:
        self.recent: deque[LagEvent] = deque(maxlen=RECENT_MAX)
        self._clock = clock
        self._events: list[LagEvent] = []
        self._left_out: dict[tuple[EventKind, str, str], int] = {}
        """Events that had no room, by kind, group and topic."""
        self._keys: Collection[QueueKey] = ()
        self._ahead_ms = self._wall_ahead_ms()

    def add(self, kind: EventKind, group: str = "", topic: str = "", *, queue: int = -1, detail: str = "") -> None:
        """Note that something happened now."""
        if len(self._events) >= EVENTS_MAX:
            names = (kind, group, topic)
            if names not in self._left_out and len(self._left_out) >= OMITTED_MAX:
                names = (kind, "", "")
            self._left_out[names] = self._left_out.get(names, 0) + 1
            return
        line = " ".join(detail.split())[:DETAIL_CHARS_MAX]
        event = LagEvent(time_ms=self._clock.wall_ms(), kind=kind, group=group, topic=topic, queue=queue, detail=line)
        self._events.append(event)
        self.recent.append(event)

    def look_at_clock(self) -> None:
        """Note a step of the wall clock since the last look."""
        ahead_ms = self._wall_ahead_ms()
        step_ms, self._ahead_ms = ahead_ms - self._ahead_ms, ahead_ms
        if abs(step_ms) >= CLOCK_STEP_MS:
            self.add(EventKind.CLOCK, detail=f"{step_ms:+d} ms")

    def looking_at_queues(self, samples: Iterable[tuple[QueueKey, QueueSample]]) -> Generator[None, None, None]:
        """Note groups and queues that were in the round before and are not in this one, in steps."""
        now: set[QueueKey] = set()
        groups: set[str] = set()
        for number, (key, _) in enumerate(samples, start=1):
            now.add(key)
            groups.add(key.group)
            if number % KEYS_AT_ONCE == 0:
                yield
        left = []
        for number, key in enumerate(self._keys, start=1):
            if key not in now:
                left.append(key)
            if number % KEYS_AT_ONCE == 0:
                yield
        left.sort(key=lambda key: (key.group, key.topic, key.queue))
        for group in dict.fromkeys(key.group for key in left if key.group not in groups):
            self.add(EventKind.LEFT, group, detail="the group is no longer configured")
        for key in left:
            if key.group in groups:
                self.add(EventKind.LEFT, key.group, key.topic, queue=key.queue, detail="the queue no longer exists")
        self._keys = now

    def take(self) -> list[LagEvent]:
        """Return what was noted since the last call, in order."""
        events, self._events = self._events, []
        left_out, self._left_out = self._left_out, {}
        for (kind, group, topic), count in left_out.items():
            text = f"{count} more events are omitted"
            events.append(LagEvent(time_ms=events[-1].time_ms, kind=kind, group=group, topic=topic, detail=text))
        return events

    def _wall_ahead_ms(self) -> int:
        return self._clock.wall_ms() - round(self._clock.monotonic() * 1000)


class RetentionNotes:
    """The recorder's `broker.retention.RetentionHold`: it needs nothing, and notes which files went."""

    def __init__(self, notes: Notes) -> None:
        self._notes = notes

    def needs(self, expiring: ExpiringSegment) -> bool:
        """Nothing."""
        return False

    def relocate(self, expiring: ExpiringSegment, count_max: int) -> AwaitedSteps[Relocation]:
        """Say that nothing pending is left."""
        yield from ()
        return Relocation.DONE

    def dropped(self, expiring: ExpiringSegment) -> None:
        """Note that a log file is gone, and where its queues begin now."""
        queues = [f"{topic} {queue} from {first}" for (topic, queue), first in sorted(expiring.minimums.items())]
        named = ", ".join(queues[:_QUEUES_NAMED])
        more = f" and {len(queues) - _QUEUES_NAMED} more" if len(queues) > _QUEUES_NAMED else ""
        self._notes.add(EventKind.RETENTION, detail=f"a log file was deleted for its {expiring.reason}: {named}{more}")


# When the coarser files of the lag journal are made, and its oldest deleted: about once an hour, in steps.


DELETED = declare("pyddmq_lag_files_deleted_total", "Deleted files of the lag journal: old, or over bytesMax")

ROUND_SECONDS = 3_600.0
_STEPS_MAX = 1_000
"""Of one call; a sync that is under way is waited for until the next round of samples."""
_NAMES: dict[Tier, TierName] = {Tier.RAW: "raw", Tier.MINUTE: "minute", Tier.HOUR: "hour"}
_SHARES = {Tier.RAW: 0.25, Tier.MINUTE: 0.5, Tier.HOUR: 0.25}
"""Which part of bytesMax each tier may take."""


class TierRounds:
    """Runs them for one node.

    Args:
        runtime: The node's.
    """

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._work: TierWork | None = None
        self._tiers: Tiers | None = None
        self._next_at = 0.0
        self._deleted = runtime.metrics.counter(DELETED)

    def round(self, config: Config, current: str | None) -> Generator[None, None, None]:
        """Do a step of what is due; a round that waits for the disk continues with the next call.

        Args:
            config: Says how much is kept.
            current: Path of the file that grows.
        """
        now, runtime = self._runtime.clock.monotonic(), self._runtime
        if self._work is None:
            if now < self._next_at:
                return
            self._next_at = now + ROUND_SECONDS
            lag = config.lag
            limits = TierLimits(
                keep_ms={tier: lag.keep_ms(name) for tier, name in _NAMES.items()},
                bytes_max={tier: int(share * lag.bytes_max) for tier, share in _SHARES.items()},
            )
            tiers = self._tiers = Tiers(runtime.disk, f"{config.node.data}/{FOLDER}", limits)
            self._work = TierWork(tiers, runtime.clock, runtime.disk, runtime.syncs)
            self._work.begin(current)
        for _ in range(_STEPS_MAX):
            if not self._work.step():
                break
            yield
        if not self._work.is_under_way and self._tiers is not None:
            self._deleted.add(self._tiers.deleted)
            if self._tiers.trouble is not None:
                runtime.limited_log.note("lag_journal_not_tidied", fault=self._tiers.trouble)
            self._work = None

    def abandon(self) -> None:
        """Give up what is under way."""
        if self._work is not None:
            self._work.abandon()
            self._work = None


ROUNDS = declare("pyddmq_lag_rounds_total", "Rounds in which the node sampled the lag of its groups")
DROPPED = declare("pyddmq_lag_rounds_dropped_total", "Rounds that could not be written to the lag journal")
QUEUES = declare("pyddmq_lag_queues", "Queues sampled in the last round", kind="gauge")
BUSY_US = declare("pyddmq_lag_round_microseconds_total", "Time of the event loop spent on rounds, in microseconds")

STEP_SECONDS = 0.001
STEP_PIECES = 64
"""Pieces of a step at most, a queue each: the bound where the clock does not advance."""
KEYS_AT_ONCE = 512
FIRST_SECONDS = 1.0
"""The first round comes so soon after the start."""
JITTER = 0.1
SHARE = 0.1
"""Part of the loop's time that rounds take at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round found.

    Attributes:
        time_ms: When it began, wall clock.
        queues: All queues.
        scheduled: What waits by its own time.
    """

    time_ms: int
    queues: list[tuple[QueueKey, QueueSample]]
    scheduled: list[ScheduledSample]


def _journal(config: Config, runtime: Runtime) -> JournalWriter:
    """Begin a journal of the node's own, as configured."""
    origin = JournalOrigin(
        cluster=config.node.broker_cluster, node=config.node.broker_name, epoch=runtime.random.getrandbits(64)
    )
    limits = WriterLimits(interval_ms=config.lag.every_ms)
    return JournalWriter(runtime.disk, f"{config.node.data}/{FOLDER}", origin, limits, syncs=runtime.syncs)


def _is_round(block: Block) -> bool:
    """Whether a block is a round: a stop writes one besides, which has its event and no queues."""
    return bool(block.queues) or all(each.kind is not EventKind.STOP for each in block.events)


class Recorder:
    """Records one node.

    Attributes:
        notes: Takes what happens to the node and its groups.
        last: The last round; None before the first.
        windows: The last samples of each queue.
        judge: Judges the queues by those.
        verdicts: The reported verdicts on the groups and the node.
        trouble: Why that is not in the journal; None: it is.

    Args:
        in_force: The node's configuration and groups.
        runtime: The node's.
    """

    def __init__(self, in_force: InForce, runtime: Runtime) -> None:
        self.notes = Notes(runtime.clock)
        self.last: Round | None = None
        self.windows = NodeWindows()
        self.judge = QueueJudge(self.windows, runtime.clock, in_force.config_of, lambda: in_force.config.lag)
        self.verdicts = NodeVerdicts(in_force, runtime)
        self.trouble: str | None = None
        self._in_force = in_force
        self._runtime = runtime
        self._steps: Scheduler = runtime.scheduler
        self._sink: JournalWriter | None = None
        self._config: LagConfig | None = None
        self._samplers: tuple[QueueSampler, ScheduledSampler] | None = None
        self._next = Later(runtime.scheduler, self._begin)
        self._going_on: Generator[None, None, None] | None = None
        self._recalled = False
        self._spent = self._sampled = 0.0
        """Seconds of the loop's time that the last round took: all of it, and until it was written."""
        self._tiers = TierRounds(runtime)
        metrics = runtime.metrics
        self._rounds, self._dropped = metrics.counter(ROUNDS), metrics.counter(DROPPED)
        self._queues_seen, self._busy_us = metrics.counter(QUEUES), metrics.counter(BUSY_US)

    def waiting(self) -> list[tuple[ScheduledSample, WaitingLag]]:
        """Return what waits by its own time as of the last round, each row with its verdict of now."""
        now_ms, limits = self._runtime.clock.wall_ms(), limits_of_config(None, "", self._in_force.config.lag)
        return [(each, judge_waiting(each, now_ms, limits)) for each in (self.last.scheduled if self.last else [])]

    def start(self, store: Store, queues: QueueSampler, scheduled: ScheduledSampler, steps: Scheduler) -> None:
        """Begin, once the node's groups read.

        Args:
            store: The node's.
            queues: Samples the groups' queues.
            scheduled: Samples what waits by its own time.
            steps: Runs the steps of a round.
        """
        self._steps = steps
        self._samplers = queues, scheduled
        store.retention.holds.append(RetentionNotes(self.notes))
        self.notes.add(EventKind.START, detail="the node serves")
        self.configure()

    def configure(self) -> None:
        """Bring the settings in force after a reload to bear."""
        before, self._config = self._config, self._in_force.config.lag
        self.verdicts.configure()
        self.windows.window_ms = window_ms_of(self._in_force.config)
        if before is not None and (before.enabled, before.every_ms) == (self._config.enabled, self._config.every_ms):
            return
        self._end(write=True)
        if self._config.enabled:
            self._sink = _journal(self._in_force.config, self._runtime)
            self._next.after(FIRST_SECONDS if before is None else self._seconds())
        else:
            self.last = self.trouble = None
            self.windows.clear()
            self._queues_seen.value = 0

    def stop(self) -> None:
        """Do nothing any more, and write nothing: as a kill."""
        self._next.cancel()
        if self._going_on is not None:
            self._going_on.close()
            self._going_on = None
        self._tiers.abandon()

    def close(self) -> None:
        """Note that the node stops, and end the journal's file."""
        self.notes.add(EventKind.STOP, detail="the node was stopped")
        self._end(write=True)
        self.verdicts.stop()

    def _end(self, *, write: bool) -> None:
        self.stop()
        sink, self._sink = self._sink, None
        if sink is not None and write:
            for event in self.notes.take():
                sink.note(event)
            sink.close(self._runtime.clock.wall_ms())

    def _seconds(self) -> float:
        """Time to the next round."""
        return self._in_force.config.lag.every_ms / 1000 * (1 + JITTER * (2 * self._runtime.random.random() - 1))

    def _begin(self) -> None:
        self._spent = 0.0
        if self._sink is not None and self._samplers is not None:
            self._going_on = self._round(self._sink, *self._samplers)
            self._step()

    def _step(self) -> None:
        """Do pieces of the round for as long as a step may take."""
        going_on, clock = self._going_on, self._runtime.clock
        if going_on is None:
            return
        began = clock.monotonic()
        try:
            ended = False
            for _ in range(STEP_PIECES):
                ended = isinstance(step(going_on), StepsEnd)
                if ended or clock.monotonic() - began >= STEP_SECONDS:
                    break
        except Exception as error:
            self.trouble = f"{type(error).__name__}: {error}"
            self._runtime.limited_log.fault("lag_round_failed", error, kind="round")
            self._dropped.add()
            self._renew()
            self._over()
        else:
            if ended:
                self._over()
            else:
                self._steps.call_soon(self._step)
        spent = clock.monotonic() - began
        self._spent += spent
        self._busy_us.add(round(spent * 1_000_000))

    def _renew(self) -> None:
        """Begin another file: the round that failed may have begun to be written."""
        if self._sink is not None:
            self._sink.close(self._runtime.clock.wall_ms())
            self._sink = _journal(self._in_force.config, self._runtime)

    def _over(self) -> None:
        self._going_on = None
        if self._sink is not None:
            self._next.after(max(self._seconds(), self._sampled / SHARE))

    def _round(
        self, sink: JournalWriter, queues: QueueSampler, scheduled: ScheduledSampler
    ) -> Generator[None, None, None]:
        """Look at everything once, and write it."""
        if not self._recalled:
            self._recalled = True
            yield from self._recall(queues)
        self._rounds.add()
        time_ms = self._runtime.clock.wall_ms()
        self.notes.look_at_clock()
        samples = yield from queues.round()
        waiting = []
        for read in scheduled.round():
            sample = read()
            if sample is not None:
                waiting.append(sample)
            yield
        yield from self.notes.looking_at_queues(samples)
        yield
        self.last = Round(time_ms=time_ms, queues=samples, scheduled=waiting)
        yield from self.windows.taking_round(samples)
        self._queues_seen.value = len(samples)
        yield
        yield from self._write(sink, self.last)
        # Judging has a share of its own.
        self._sampled = self._spent
        yield from self.verdicts.round(time_ms)
        yield from self._tiers.round(self._in_force.config, sink.current)

    def _recall(self, queues: QueueSampler) -> Generator[None, None, None]:
        """Fill the windows with what the journal has of an earlier process: trends do not begin again at a restart."""
        node, now_ms = self._in_force.config.node, self._runtime.clock.wall_ms()
        reader = JournalReader(self._runtime.disk, f"{node.data}/{FOLDER}")
        since_ms = now_ms - self.windows.window_ms
        # A file holds an hour; all of it is asked for, so that each of its snapshots is a step.
        blocks = []
        for block in reader.steps(JournalQuery(since_ms=since_ms // FILE_MS * FILE_MS, until_ms=now_ms)):
            yield
            if block is None or isinstance(block, BlockGap) or block.tier is not Tier.RAW or block.time_ms < since_ms:
                continue
            if (block.head.cluster, block.head.node) == (node.broker_cluster, node.broker_name):
                blocks.append(block)
        newest = next(filter(_is_round, reversed(blocks)), None)
        if newest is None:
            # The node was down for longer than a window.
            for found in reader.newest():
                yield
                if found is not None and _is_round(found):
                    newest = found
        if newest is not None:
            for number, ((group, topic, queue), time_ms, row) in enumerate(newest.queues, start=1):
                if time_ms <= now_ms:
                    queues.recall(group, topic, queue, queue_sample(time_ms, row))
                if number % STEP_PIECES == 0:
                    yield
            left = {group for (group, _, _), _, _ in newest.queues} - self._in_force.groups.keys()
            for group in sorted(left):
                self.notes.add(EventKind.LEFT, group, detail="the group is no longer configured")
        for block in blocks:
            yield
            for event in block.events:
                self.windows.note(event)
            for number, (place, time_ms, row) in enumerate(block.queues, start=1):
                if time_ms <= now_ms:
                    self.windows.add(place, queue_sample(time_ms, row))
                if number % STEP_PIECES == 0:
                    yield
            if block.time_ms >= blocks[-1].time_ms - SETTLED_MS:
                yield from self.verdicts.recall(self.windows, block.time_ms)

    def _write(self, sink: JournalWriter, found: Round) -> Generator[None, None, None]:
        for event in self.notes.take():
            self.windows.note(event)
            sink.note(event)
        sink.begin(found.time_ms)
        for at in range(0, len(found.queues), STEP_PIECES):
            rows = found.queues[at : at + STEP_PIECES]
            sink.add([((key.group, key.topic, key.queue), sample) for key, sample in rows])
            yield
        kept = sink.end(found.scheduled)
        self.trouble = sink.trouble
        if not kept:
            self._dropped.add()
            self._runtime.limited_log.note("lag_journal_not_written", fault=sink.trouble or "unknown")
