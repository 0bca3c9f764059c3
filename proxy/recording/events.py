"""What happened to a node and its groups between two rounds: told by those who do it, or seen by comparing rounds."""

from __future__ import annotations

from collections.abc import Collection

from broker.log.durability import AwaitedSteps
from broker.retention import ExpiringSegment, Relocation
from broker.runtime.seams import Clock
from lag.samples import EventKind, LagEvent, QueueKey

CLOCK_STEP_MS = 1_000
"""A wall clock that moved by more than this against the monotonic one was stepped."""
EVENTS_MAX = 1_000
"""Events of one round; of more the first are kept, and a last one says how many are left out."""
DETAIL_CHARS_MAX = 200
_QUEUES_NAMED = 3


class Notes:
    """Gathers the events of one node until a round takes them.

    Args:
        clock: Dates them.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._events: list[LagEvent] = []
        self._left_out = 0
        self._keys: Collection[QueueKey] = ()
        self._ahead_ms = self._wall_ahead_ms()

    def add(self, kind: EventKind, group: str = "", topic: str = "", *, queue: int = -1, detail: str = "") -> None:
        """Note that something happened now."""
        if len(self._events) >= EVENTS_MAX:
            self._left_out += 1
            return
        line = " ".join(detail.split())[:DETAIL_CHARS_MAX]
        event = LagEvent(time_ms=self._clock.wall_ms(), kind=kind, group=group, topic=topic, queue=queue, detail=line)
        self._events.append(event)

    def look_at_clock(self) -> None:
        """Note a step of the wall clock since the last look."""
        ahead_ms = self._wall_ahead_ms()
        step_ms, self._ahead_ms = ahead_ms - self._ahead_ms, ahead_ms
        if abs(step_ms) >= CLOCK_STEP_MS:
            self.add(EventKind.CLOCK, detail=f"{step_ms:+d} ms")

    def look_at_queues(self, keys: Collection[QueueKey]) -> None:
        """Note groups and queues that were in the round before and are not in this one."""
        now, groups = set(keys), {key.group for key in keys}
        left = sorted(set(self._keys) - now, key=lambda key: (key.group, key.topic, key.queue))
        for group in dict.fromkeys(key.group for key in left if key.group not in groups):
            self.add(EventKind.LEFT, group, detail="the group is no longer configured")
        for key in left:
            if key.group in groups:
                self.add(EventKind.LEFT, key.group, key.topic, queue=key.queue, detail="the queue no longer exists")
        self._keys = now

    def take(self) -> list[LagEvent]:
        """Return what was noted since the last call, in order."""
        events, self._events = self._events, []
        if self._left_out:
            last = events[-1]
            text = f"{self._left_out} more events are omitted"
            events.append(LagEvent(time_ms=last.time_ms, kind=last.kind, detail=text))
            self._left_out = 0
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
