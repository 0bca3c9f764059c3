"""Random windows of lag, from a seed: queues whose consumers, messages and operators go through phases."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from broker.runtime.disk import RealDisk
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.rules.limits import LagLimits
from lag.samples import EventKind, LagEvent, QueueSample, ScheduledSample

EVERY_MS = 10_000
ROUNDS = 100
BEFORE = 40
"""Rounds before the window that is reported."""
START_MS = 1_714_953_600_000
PHASES = (
    "well", "well", "idle", "slow", "surge", "catching_up", "no_consumer", "no_consumer", "stopped", "unanswered",
    "all_fail", "poison", "retention", "limited", "paused", "sink", "push_fails", "unreadable", "trickle", "never",
)  # fmt: skip
ACCIDENTS = ("reset", "rewind", "skip", "emptied", "take", "ahead", "anew", "forget")
Name = tuple[str, str, int]


@dataclass
class Round:
    """What a node writes down at one moment."""

    time_ms: int
    rows: list[tuple[Name, QueueSample]] = field(default_factory=list)
    events: list[LagEvent] = field(default_factory=list)
    scheduled: list[ScheduledSample] = field(default_factory=list)
    restarts: bool = False


@dataclass
class LagWindow:
    """A history and the window of it that is reported."""

    rounds: list[Round]
    limits: LagLimits
    from_ms: int
    to_ms: int

    def samples(self) -> list[dict[str, Any]]:
        """Return a mapping per sample, for a table."""
        return [
            {"round": number, "group": name[0], "topic": name[1], "queue": name[2], **asdict(sample)}
            for number, each in enumerate(self.rounds)
            for name, sample in each.rows
        ]

    def scheduled(self) -> list[dict[str, Any]]:
        """Return what waited by its own time, likewise."""
        return [asdict(sample) for each in self.rounds for sample in each.scheduled]

    def events(self) -> list[LagEvent]:
        """Return all events."""
        return [event for each in self.rounds for event in each.events]

    def write(self, folder: Path) -> None:
        """Write the history as a node's journal."""
        journal: JournalWriter | None = None
        for number, each in enumerate(self.rounds):
            if journal is None or each.restarts:
                if journal is not None:
                    journal.close(self.rounds[number - 1].time_ms + 1)
                origin = JournalOrigin(cluster="c", node="n", epoch=number + 1)
                journal = JournalWriter(RealDisk(), str(folder), origin, WriterLimits(free_bytes_min=0))
            for event in each.events:
                journal.note(event)
            assert journal.write(each.time_ms, each.rows, each.scheduled)
        assert journal is not None
        journal.close(self.rounds[-1].time_ms + 1)


class Life:
    """One queue of a group: what is stored, consumed and lost, from phase to phase."""

    def __init__(self, random: Random, name: Name, now: int) -> None:
        self.random, self.name = random, name
        self.end = random.choice((0, 50, 4_000))
        self.start = random.randrange(self.end + 1) if random.random() < 0.3 else 0
        self.committed: int | None = self.end if random.random() < 0.9 else None
        self.times = [now - 90_000_000, now]
        self.ends = [self.end, self.end]
        self.facts: dict[str, Any] = {"expired": 0, "skipped": 0, "dead_letters": 0, "base": 0}
        if self.committed is not None and random.random() < 0.8:
            self.facts |= {"moved_ms": now, "answered_ms": now, "asked_ms": now, "succeeded_ms": now}
        self.finished = 0
        self.lifts = random.random() < 0.8
        """Whether a loss lifts the committed offset, as a node's own store does; a Kafka cluster leaves it."""
        self.begin(now)

    def begin(self, now: int) -> None:
        """Begin another phase."""
        random = self.random
        self.phase, self.left, self.since = random.choice(PHASES), random.randrange(4, 45), now
        self.rate = random.choice((0, 1, 5, 40, 300))
        self.finished = 0

    def stored_ms(self, offset: int) -> int | None:
        """Return when a message was stored; None where it is not stored yet."""
        if offset >= self.end or offset < self.start:
            return None
        place = bisect_right(self.ends, offset)
        low, high = self.ends[place - 1] if place else 0, self.ends[place]
        before = self.times[place - 1] if place else self.times[0]
        return before + (self.times[place] - before) * (offset - low + 1) // (high - low)

    def step(self, now: int) -> list[LagEvent]:
        """Go on by a round, and return what happened beside it."""
        random = self.random
        self.left -= 1
        if self.left < 0:
            self.begin(now)
        rate = self.rate
        if self.phase == "surge":
            rate = self.rate * 3 + 20
        elif self.phase in {"idle", "never"}:
            rate = 0
        elif self.phase == "trickle":
            rate = 1
        self.end += rate if random.random() < 0.5 else random.randrange(2 * rate + 1)
        self.times.append(now)
        self.ends.append(self.end)
        self._consume(now, rate)
        if random.random() < 0.02:
            self._retain(random.randrange(self.start, max(self.committed or 0, self.start) + 1))
        if self.phase == "retention" and random.random() < 0.3:
            self._retain(min(self.end, self.start + random.randrange(4 * rate + 1)))
        return self._accident(now, random.choice(ACCIDENTS)) if random.random() < 0.005 else []

    def _retain(self, start: int) -> None:
        before, self.start = self.start, max(self.start, start)
        if self.committed is not None and self.committed < self.start:
            self.facts["expired"] += max(0, self.start - max(self.committed, before) - self.finished)
            self.finished = 0
            if self.lifts:
                self.committed = self.start

    def _consume(self, now: int, rate: int) -> None:
        random, facts = self.random, self.facts
        speed = {
            "well": self.end, "idle": self.end, "trickle": self.end, "slow": rate * 7 // 10, "surge": rate // 3,
            "catching_up": rate * 3 // 2 + 60, "limited": rate // 2, "retention": rate // 2, "unreadable": self.end,
        }.get(self.phase, 0)  # fmt: skip
        clients = self.phase not in {"no_consumer", "paused", "never"}
        if clients:
            facts["asked_ms"] = now - random.randrange(900)
        if clients and self.phase not in {"stopped", "unanswered"} and self.end > (self.committed or 0):
            facts["answered_ms"] = now - random.randrange(900)
        before = self.committed
        if speed:
            self.committed = min(self.end, max(self.committed or 0, self.start) + random.randrange(speed, speed + 2))
            if self.phase == "well" and random.random() < 0.5:
                self.committed = max(before or 0, self.start, self.committed - random.randrange(15))
        if self.committed is not None and (before is None or self.committed > before):
            facts["moved_ms"] = facts["succeeded_ms"] = now - random.randrange(2_000)
        if random.random() < 0.03:
            self.finished = random.randrange(1 + max(0, self.end - max(self.committed or 0, self.start)))

    def _accident(self, now: int, kind: str) -> list[LagEvent]:
        random, facts = self.random, self.facts
        group, topic, queue = self.name
        if self.committed is None:
            return []
        if kind in {"reset", "rewind"}:
            self.committed, self.finished = random.randrange(self.start, self.end + 1), 0
            place = random.choice((("", -1), (topic, -1), (topic, queue)))
            event = LagEvent(time_ms=now - 1, kind=EventKind.RESET, group=group, topic=place[0], queue=place[1])
            return [event] if kind == "reset" else []
        if kind == "skip" and self.committed < self.end:
            self.committed, facts["skipped"] = self.committed + 1, facts["skipped"] + 1
        if kind == "emptied":
            self._retain(self.end)
            facts["base"] = self.end
        if kind == "take":
            self._retain(random.randrange(self.start, self.end + 1))
        if kind == "ahead":
            self.committed = self.end + random.randrange(40)
        if kind == "anew":
            self.start = self.end = self.committed = self.finished = 0
            self.times, self.ends = [now - 1, now], [0, 0]
        if kind == "forget":
            self.committed, self.finished = None, 0
        return []

    def sample(self, now: int) -> QueueSample:
        """Return what a node knows now."""
        random, facts, phase = self.random, dict(self.facts), self.phase
        if phase == "unreadable" and random.random() < 0.4:
            return QueueSample(time_ms=now, paused=random.random() < 0.2, expired=facts["expired"])
        place = max(self.committed or 0, self.start)
        lag = max(self.end - place, 0)
        started = min(self.end, place + random.choice((0, 0, 5, lag))) if random.random() < 0.9 else None
        facts |= {
            "start": self.start, "end": self.end, "committed": self.committed, "finished": min(self.finished, lag),
            "started": started, "start_ms": self.stored_ms(self.start), "end_ms": self.stored_ms(self.end - 1),
            "committed_ms": self.stored_ms(place) if random.random() < 0.6 else None,
            "started_ms": None if started is None else self.stored_ms(started),
            "paused": phase == "paused", "limited": phase == "limited",
            "holders": 0 if phase in {"no_consumer", "paused", "never", "stopped"} else random.randrange(3),
            "matched": random.choice((None, 0.5)),
        }  # fmt: skip
        if lag and phase in {"unanswered", "slow", "all_fail", "push_fails"}:
            facts["in_flight"] = random.randrange(4)
        if lag and phase in {"poison", "all_fail", "push_fails"}:
            tries = (now - self.since) // 30_000
            facts |= {"held_offset": place, "held_attempts": tries, "held_since_ms": self.since, "held_reason": "boom"}
            facts |= {"failing": 1 if phase == "poison" else lag, "retrying": 1 if phase == "poison" else min(lag, 9)}
            facts["waiting"] = random.choice((0, lag - 1))
        if lag and phase == "unanswered" and now - self.since >= 60_000:
            facts |= {"out_offset": place, "out_client": "10.0.0.1", "out_since_ms": self.since}
        if lag and phase == "sink":
            facts |= {"sink_server": "redis", "sink_reason": "refused", "sink_since_ms": self.since}
        facts["pushing"] = phase == "push_fails"
        return QueueSample(time_ms=now, **facts)


def window(seed: int) -> LagWindow:
    """Return the window of a seed."""
    random = Random(seed)
    names: list[Name] = [("single", "t", 0), ("alone", "t", 0), ("other", "t", 0)]
    names += [("several", "u", queue) for queue in range(random.choice((2, 3, 5)))]
    lives = {name: Life(random, name, START_MS) for name in names}
    rounds: list[Round] = []
    gap = range(0)
    end = ROUNDS - random.choice((0, 0, 0, 4, 9))
    step_at, step_ms = random.choice((0, 0, 0, random.randrange(20, 90))), random.choice((-200_000, -30_000, 45_000))
    for number in range(end):
        now = START_MS + number * EVERY_MS + (step_ms if number >= step_at > 0 else 0)
        if number != step_at and random.random() < 0.01:
            gap = range(number, number + random.choice((1, 2, 4, 8, 20)))
        events = [event for life in lives.values() for event in life.step(now)]
        if number == step_at > 0:
            gap = range(0)
            events.append(LagEvent(time_ms=now - 3, kind=EventKind.CLOCK, detail=f"{step_ms:+d} ms"))
        if number in gap:
            if rounds:
                rounds[-1].events += events
            continue
        each = Round(now, events=events, restarts=number - 1 in gap, scheduled=_scheduled(random, now))
        for place, (name, life) in enumerate(lives.items()):
            each.rows.append((name, life.sample(now + place % 3)))
        rounds.append(each)
        if number > BEFORE and random.random() < 0.005:
            gone = random.choice(list(lives))
            del lives[gone]
            left = LagEvent(time_ms=now + 50, kind=EventKind.LEFT, group=gone[0], topic=gone[1], queue=gone[2])
            each.events.append(left)
    return LagWindow(
        rounds=rounds,
        limits=_limits(random),
        from_ms=START_MS + BEFORE * EVERY_MS,
        to_ms=START_MS + ROUNDS * EVERY_MS,
    )


def _scheduled(random: Random, now: int) -> list[ScheduledSample]:
    """Return what waits by its own time: most of it in time."""
    found = []
    for kind, level in (("timer", 0), ("delay", 3), ("half", 0)):
        pending = random.choice((0, 7))
        overdue = random.choice((0, 0, pending))
        since = now - random.choice((900, 3_000, 9_000, 240_000)) if overdue and kind != "half" else None
        oldest = now - random.choice((5_000, 240_000, 500_000)) if pending and random.random() < 0.9 else None
        found.append(
            ScheduledSample(
                time_ms=now,
                kind=kind,
                level=level,
                pending=pending,
                overdue=overdue,
                oldest_due_ms=since,
                oldest_ms=oldest,
            )
        )
    return found


def _limits(random: Random) -> LagLimits:
    """Return limits, some of which are not the defaults."""
    values: dict[str, Sequence[Any]] = {
        "target_ms": (20_000, 60_000, 300_000), "target_messages": (100, 5_000), "floor_messages": (0, 10, 50),
        "dead_band": (0.0, 0.05, 0.2), "window_ms": (180_000, 240_000, 300_000), "samples_min": (3, 5),
        "stale_ms": (30_000, 60_000), "growing_ms": (30_000, 60_000), "stop_ms": (60_000, 120_000, 180_000),
        "absent_ms": (30_000, 60_000), "poison_attempts": (3, 5), "retention_percent": (50.0, 80.0),
        "surge": (1.2, 1.5, 2.0), "queues_min": (3, 4), "all_fail_ms": (30_000, 60_000),
    }  # fmt: skip
    chosen = {name: random.choice(some) for name, some in values.items() if random.random() < 0.3}
    return replace(LagLimits(), **chosen)
