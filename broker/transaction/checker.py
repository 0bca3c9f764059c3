"""Checks: which undecided halves are queued, which client fetches them, and when they are discarded.

A half comes into its group's line once it is `timeout_ms` old, or as old as it asks for, by the broker's own clock: the
producer's has no say. A producer that fetches it has it for `interval_ms`, and no other client; that is one check.
Nothing is written for it. After `checks_max` of them, or `age_seconds_max` of uptime, the half goes to the discard
topic. What cannot be read is lost and blocks no other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from broker.errors import DiskFull, StoreError
from broker.format.body import BODY_BYTES_MAX, SYS_PACKED, unpack
from broker.format.properties import find_property
from broker.format.record import sys_flag
from broker.log.put import LogPosition, is_foreign
from broker.runtime.bundle import Runtime
from broker.runtime.later import Earliest
from broker.runtime.step_size import StepSize
from broker.transaction import metrics as counted
from broker.transaction.half import Half, discard_of, message_block
from broker.transaction.halves import Halves
from broker.transaction.names import DISCARD_TOPIC, Fate, TransactionHandle
from broker.transaction.ops import OpWriter
from broker.transaction.settings import CheckSettings
from broker.transaction.states import HalfState

STEP_HALVES = 512
"""Halves that one step queues or discards, fewer while others have something to do (`step_size`)."""
AGE_LOOK_SECONDS = 60.0
RETRY_SECONDS = 10.0
FOREIGN_MAX = 64
"""Halves of other principals that one fetch passes over; the next one finds them behind the others."""
WAIT_SECONDS_MIN = 0.001
"""A loop runs its timers a little early; waiting less than that would be a step that finds nothing due."""


class HalfCheck(NamedTuple):
    """A half that its producer is asked about, with the whole message.

    Attributes:
        handle: What to decide it by.
        transaction_id: Its id.
        times: Which check this is, from 1.
        topic: Where the message goes.
        queue_id: Which queue there.
        body: As it was sent.
        properties: Its property block, without what made it a half.
        key: KEYS.
        tags: TAGS.
        born_ms: When its producer made it, ms since the epoch, by the producer's clock.
        stored_ms: When the half was stored, by the broker's.
        offset: Of the half, in the half queue.
    """

    handle: str
    transaction_id: str
    times: int
    topic: str
    queue_id: int
    body: bytes
    properties: bytes
    key: str
    tags: str
    born_ms: int
    stored_ms: int
    offset: int


class TransactionChecker:
    """Makes the checks of one store.

    Attributes:
        settings: Replaced by `configure`.
        step_size: How many halves a step looks at.

    Args:
        halves: Of the store.
        ops: Takes what it discards.
        settings: As the attribute.
        runtime: Its scheduler runs the steps.
    """

    def __init__(
        self,
        halves: Halves,
        ops: OpWriter,
        runtime: Runtime,
        *,
        settings: CheckSettings,
    ) -> None:
        self.settings = settings
        self._halves = halves
        self._ops = ops
        self._scheduler = runtime.scheduler
        self.step_size = StepSize(runtime, STEP_HALVES)
        self._next = Earliest(halves.clock, runtime.scheduler, self._step)
        self._running = False
        self._aged_at = 0.0
        self._woken: dict[str, list[Callable[[], None]]] = {}
        self.times: dict[int, int] = {}
        """Counts of an earlier opening, until a half comes up."""

    def start(self) -> None:
        """Let halves come into line."""
        self._running = True
        self._arm(0.0)

    def stop(self) -> None:
        """Do nothing any more by itself."""
        self._running = False
        self._next.end()

    def configure(self, settings: CheckSettings) -> None:
        """Replace the settings, also for halves whose time was computed by the earlier ones."""
        self.settings = settings
        self._halves.checks.set_timeout(settings.timeout_ms / 1000, self._halves.clock.monotonic())
        self.changed()

    def changed(self) -> None:
        """Settings or lines are others now: look at once."""
        self._arm(0.0)

    def arrived(self) -> None:
        """New halves can be seen."""
        halves = self._halves
        queue = halves.queue()
        if queue is None or queue.max_offset <= halves.states.end:
            return
        first, running = halves.states.end, halves.running()
        halves.states.grow(queue.max_offset)
        halves.checks.arrived(first, halves.clock.monotonic())
        halves.ages.arrived(first, running, self.settings.age_seconds_max)
        if halves.seen >= first:
            halves.look(queue.max_offset - first)
        self._arm()

    def on_checks(self, group: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Have something called, from now on, after halves of a producer group came into line; returns the undoing."""
        callbacks = self._woken.setdefault(group, [])
        callbacks.append(callback)

        def undo() -> None:
            if callback in callbacks:
                callbacks.remove(callback)
            if not callbacks and self._woken.get(group) is callbacks:
                del self._woken[group]

        return undo

    # When

    def _arm(self, seconds: float | None = None) -> None:
        if not self._running:
            return
        if seconds is None:
            seconds = self._seconds_left()
            if seconds is None:
                return
        self._next.within(seconds)

    def _seconds_left(self) -> float | None:
        """Time to the next step; None while nothing is undecided."""
        halves = self._halves
        if not halves.states.undecided:
            return None
        if halves.seen < halves.states.end:
            return 0.0
        now = halves.clock.monotonic()
        waits = [self._aged_at + self._age_look() - now]
        due = halves.checks.next_due()
        if due is not None:
            waits.append(due - now)
        halves.checks.cursor = self._next_at_cursor()
        if halves.checks.cursor < halves.states.end:
            arrival = halves.checks.arrival()
            waits.append(0.0 if arrival is None else arrival + self.settings.timeout_ms / 1000 - now)
        left = min(waits)
        return max(left, WAIT_SECONDS_MIN) if left > 0 else 0.0

    def _age_look(self) -> float:
        return min(AGE_LOOK_SECONDS, self.settings.age_seconds_max / 100)

    def _next_at_cursor(self) -> int:
        """Where the cursor is once decided halves are passed, at most STEP_HALVES of it."""
        states, offset = self._halves.states, max(self._halves.checks.cursor, self._halves.states.position)
        end = min(states.end, offset + STEP_HALVES)
        while offset < end and not states.is_undecided(offset):
            offset += 1
        return offset

    # A step

    def _step(self) -> None:
        halves = self._halves
        if not self._running or halves.store.failed is not None or halves.store.closed:
            return
        before = {group: len(line) for group, line in halves.checks.lines.items()}
        count = self.step_size.begin()
        # None of the three waits for the others to be through.
        least, seen = max(1, count // 4), halves.seen
        try:
            halves.look(count)
            done = halves.seen - seen
            done += self._pass_cursor(max(least, count - done))
            done += self._pass_postponed(max(least, count - done))
            done += self._pass_aged(max(least, count - done))
        except OSError as error:
            # A start looks at all of them again; nothing else would.
            halves.store.writes.fail("checking transactions", error)
            return
        self.step_size.end(done)
        if halves.store.pending and not halves.store.is_driven:
            halves.store.flush()
        self._arm()
        for group, callbacks in list(self._woken.items()):
            line = halves.checks.lines.get(group)
            if line is not None and len(line) > before.get(group, 0):
                for callback in list(callbacks):
                    callback()

    def _pass_cursor(self, count_max: int) -> int:
        """Bring halves into line that are as old as it takes; postpone those that ask for another time."""
        halves = self._halves
        checks, states = halves.checks, halves.states
        now = halves.clock.monotonic()
        timeout = self.settings.timeout_ms / 1000
        for done in range(count_max):
            checks.cursor = self._next_at_cursor()
            if checks.cursor >= halves.seen or not states.is_undecided(checks.cursor):
                return done
            arrival = checks.arrival()
            if arrival is not None and arrival + timeout > now:
                return done
            offset = checks.cursor
            half = halves.read_or_lose(offset)
            checks.cursor += 1
            if half is None:
                continue
            if arrival is None:
                # Stored before this opening: what is left of its time runs from there, by the wall clock.
                arrival = now - max(0, halves.clock.wall_ms() - half.store_ms) / 1000
            due = arrival + (timeout if half.immunity_ms is None else half.immunity_ms / 1000)
            lease = checks.leases.pop(half.transaction_id, None)
            due = due if lease is None else max(due, lease)
            times = max(half.times, self.times.pop(offset, 0))
            if times or due > now:
                asked = checks.postpone(offset, half.group, max(due, now), times=times)
                if half.immunity_ms is None and lease is None:
                    asked.arrival = arrival
            else:
                checks.ready(half.group, offset)
        return count_max

    def _pass_postponed(self, count_max: int) -> int:
        halves = self._halves
        now = halves.clock.monotonic()
        for done in range(count_max):
            offset = halves.checks.pop_due(now)
            if offset is None:
                return done
            asked = halves.checks.asked[offset]
            if not halves.states.is_undecided(offset):
                halves.checks.forget(offset)
            elif asked.times >= self.settings.checks_max:
                # What is being decided may stay undecided, where a full disk takes no decision.
                halves.checks.postpone(offset, asked.group, now + RETRY_SECONDS)
                self._discard(offset, "checks")
            else:
                halves.checks.ready(asked.group, offset)
        return count_max

    def _pass_aged(self, count_max: int) -> int:
        halves = self._halves
        now = halves.clock.monotonic()
        # The sum that `_seconds_left` makes: a difference may be a hair shorter, and the next step be due forever.
        if self._aged_at + self._age_look() > now:
            return 0
        self._aged_at = now
        states = halves.states
        halves.ages.forget_below(states.position)
        old = halves.ages.too_old(states.waiting(states.position), halves.running(), self.settings.age_seconds_max)
        done = 0
        for done, offset in enumerate(old, 1):
            if done > count_max:
                self._aged_at = -math.inf
                return count_max
            self._discard(offset, "age")
        return done

    # Giving up

    def _discard(self, offset: int, reason: str) -> None:
        """Put a half into the discard topic; that record is the decision, the op record follows in the same write."""
        halves = self._halves
        if halves.is_busy(offset):
            return
        half = halves.read_or_lose(offset)
        if half is None:
            return
        asked = halves.checks.asked.get(offset)
        times = max(half.times, asked.times if asked is not None else 0)
        try:
            made = discard_of(half, halves.topic(DISCARD_TOPIC), times=times)
            self._ops.expect()
            halves.store.append(
                [made.put],
                born_ms=made.born_ms,
                born_host=made.born_host,
                done=partial(self._discarded, offset, half, reason),
            )
        except StoreError as error:
            halves.metrics.counter(counted.WAITS).add()
            halves.limited_log.note("half_discard_waits", offset=offset, error=str(error))
            seconds = RETRY_SECONDS if isinstance(error, DiskFull) else 10 * RETRY_SECONDS
            due, is_lined = halves.clock.monotonic() + seconds, halves.checks.is_lined(offset)
            halves.checks.postpone(offset, half.group, due, times=times).is_lined = is_lined
            return
        halves.discarding.add(offset)
        self._ops.add(offset, Fate.DISCARDED)

    def _discarded(self, offset: int, half: Half, reason: str, error: StoreError | None) -> None:
        halves = self._halves
        halves.discarding.discard(offset)
        if error is not None:
            return
        halves.resolve(offset, HalfState.ELSEWHERE, half)
        halves.metrics.counter(counted.DISCARDED, reason).add()
        halves.limited_log.note(
            "half_message_discarded",
            producer_group=half.group,
            topic=half.topic,
            transaction=half.transaction_id,
            reason=reason,
        )

    # Fetching

    def fetch(self, group: str, count_max: int, owner: str | None = None) -> list[HalfCheck]:
        """Return due checks of a producer group, in the order in which they became due; each counts as made.

        Nobody else gets them within the interval of the settings; that is how long the group has to answer with `end`,
        `from_check`. Those of halves that are another principal's than `owner` stay in line, behind the others.
        """
        halves = self._halves
        line = halves.checks.lines.get(group)
        found: list[HalfCheck] = []
        foreign: list[int] = []
        busy: list[int] = []
        while line is not None and len(found) < count_max and len(foreign) < FOREIGN_MAX:
            offset = line.take(halves.states.is_undecided)
            if offset is None:
                break
            if (asked := halves.checks.asked.get(offset)) is not None:
                asked.is_lined = False
            if halves.is_busy(offset):
                # It may stay undecided, where a full disk takes no decision.
                busy.append(offset)
                continue
            half = halves.read_or_lose(offset)
            if half is None:
                continue
            if is_foreign(half.owner, owner):
                foreign.append(offset)
                continue
            due = halves.clock.monotonic() + self.settings.interval_ms / 1000
            asked = halves.checks.postpone(offset, group, due, times=half.times)
            asked.times, asked.out = asked.times + 1, True
            found.append(_check(offset, half, asked.times))
        if found:
            halves.metrics.open_counter(counted.CHECKS, group).add(len(found))
            self._arm()
        for offset in (*busy, *foreign):
            halves.checks.ready(group, offset)
        if line is not None and line.is_empty:
            del halves.checks.lines[group]
        return found

    def give_back(self, check: HalfCheck) -> None:
        """Take a check back that no producer got: it does not count, and is due at once."""
        halves = self._halves
        asked = halves.checks.asked.get(check.offset)
        if asked is None or not asked.out or asked.times != check.times:
            return
        asked.times, asked.out, asked.due = asked.times - 1, False, 0.0
        halves.checks.ready(asked.group, check.offset)
        for callback in list(self._woken.get(asked.group, ())):
            self._scheduler.call_soon(callback)


def _check(offset: int, half: Half, times: int) -> HalfCheck:
    block = message_block(half)
    flags = sys_flag(half.record)
    body = bytes(half.body)
    if flags & SYS_PACKED:
        try:
            body = unpack(half.body, flags, BODY_BYTES_MAX)
        except StoreError:
            # As stored: the producer made it, and its id says which it is.
            body = bytes(half.body)
    return HalfCheck(
        handle=str(TransactionHandle(offset, half.physical, half.transaction_id)),
        transaction_id=half.transaction_id,
        times=times,
        topic=half.topic,
        queue_id=half.queue_id,
        body=body,
        properties=block,
        key=(find_property(block, b"KEYS") or b"").decode("utf-8", "replace"),
        tags=(find_property(block, b"TAGS") or b"").decode("utf-8", "replace"),
        born_ms=half.born_ms,
        stored_ms=half.store_ms,
        offset=offset,
    )


def handle_of(position: LogPosition) -> str:
    """Return the handle of a half that was put at a position."""
    return str(TransactionHandle(position.offset, position.physical, position.unique_key.decode("utf-8", "replace")))
