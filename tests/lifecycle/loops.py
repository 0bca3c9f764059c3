"""docs/states.md: occurrences of loops, and what is sent once for later."""

from __future__ import annotations

import contextlib

from broker.errors import DamagedRecord, RecordGone
from broker.format.message import message_of
from broker.scheduled.cancelling import CancelEffect
from broker.scheduled.recurring.occurrence import Occurrence
from broker.scheduled.timer.names import TIMER_TOPIC
from tests.integration.loop_tools import START_S, TOPIC, World, loop, once, walked, world
from tests.integration.timer_tools import SMALL
from tests.integration.waiting_tools import drive
from tests.lifecycle.delays import GONE
from tests.lifecycle.scenario import DERIVED, MADE_ANEW, Moment, Scenario
from tests.lifecycle.walk import Walk

TIME = "its time has come, and it "
KILLED = "kill, power loss"


class Loops(Scenario):
    """Adds loops of both kinds, some of the past, cancels them by any of their ids, and takes their topic away."""

    table = "states.md: Loops"
    losses = DERIVED
    spoils = MADE_ANEW

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        self._waiting: dict[str, dict[int, int]] = {}
        """By id: queue offset by commit-log offset of its records in the timer topic."""
        self._keys: dict[str, str] = {}
        """UNIQ_KEY of its last record there."""
        self._cancels: set[int] = set()
        self._delivered: list[str] = []
        self._looked: set[int] = set()
        self._looked_to: dict[tuple[str, int], int] = {}
        """First offset of a queue that was not looked at since the start."""
        self._answered: list[tuple[str, Occurrence]] = []
        self._number = 0

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._made = self._open()
        self._deliver()
        self._miss()
        self._cancel_some()
        self._move_some()
        self._refuse()
        self._fail_syncs()
        self._made.close()

    # What happens

    def _deliver(self) -> None:
        short = self._add(loop(self._from_now(2), every=3, times=4))
        self._add(loop(self._from_now(1), growth=2, times=4))
        single = self._add(once(self._from_now(3)))
        self._advance(1.5)
        self._again()
        self._went(short, KILLED)
        self._advance(4)
        self._again()
        self._went(single, KILLED)
        self._advance(20)

    def _miss(self) -> None:
        """What is of the past comes at once, and so does what nobody was there for."""
        self._add(loop(self._from_now(-20), every=3, times=9))
        self._add(loop(self._from_now(2), every=3, times=9))
        self._advance(3)
        self.clock.advance(10)
        self._again()
        self._advance(20)

    def _cancel_some(self) -> None:
        """The only one, one that waits for its first time, and one by an occurrence that is delivered."""
        single = self._add(once(self._from_now(5)))
        fresh = self._add(loop(self._from_now(5), every=3, times=5))
        under_way = self._add(loop(self._from_now(1), every=4, times=5))
        self._cancel(single, single)
        self._cancel(walked(fresh)[3], fresh)
        self._advance(6)
        self._cancel(under_way, walked(under_way)[2])
        self._again()
        self._went(fresh, KILLED)
        self._advance(20)

    def _move_some(self) -> None:
        """Sooner, later than the next one, to a moment that is over, and the last of all; then one is cancelled."""
        later = self._add(loop(self._from_now(3), every=3, times=4))
        sooner = self._add(loop(self._from_now(9), every=3, times=2))
        single = self._add(once(self._from_now(4)))
        ended = self._add(loop(self._from_now(2), every=3, times=4))
        self._move(later, 8)
        self._move(sooner, 1)
        self._again()
        self._went(later, KILLED)
        self._move(single, -5)
        self._advance(3)
        self._move(walked(ended)[1], 4)
        self._cancel(ended, walked(ended)[1])
        self._advance(20)

    def _refuse(self) -> None:
        made = self._made
        made.store.create_topic(GONE, 1)
        kept = self._add(loop(self._from_now(1), every=3, times=3), GONE)
        ended = self._add(loop(self._from_now(1), every=3, times=3), GONE)
        made.store.topic_changes.delete(GONE)
        self._advance(2)
        self._cancel(ended, ended, GONE)
        made.timers.save()
        self._again()
        self._went(kept, KILLED)
        self._made.store.create_topic(GONE, 1)
        self._advance(25)

    def _fail_syncs(self) -> None:
        """A sync fails while an occurrence is delivered: a life each, since the store writes no more."""
        for event in ("kill, and the log has its delivery", "power loss, and the log"):
            first = self._add(loop(self._from_now(2), every=3, times=2))
            self.disk.fail("sync", path_part="/commitlog/")
            self._made.scheduler.advance(2.5)
            self._went(first, "its time has come, and the sync fails")
            self.disk.heal()
            lost = event.startswith("power")
            self._again(power_lost=lost)
            self._look(self._made)
            # Overdue as it is, it may have come with the start already.
            at_once = lost and self._state(first.id) == "delivered"
            self._went(first, event, *([TIME + "has a next one"] if at_once else []))
            self._advance(10)

    # How it runs

    def _open(self) -> World:
        # No two openings make the same ids.
        self._looked_to.clear()
        made = world(self.disk, self.clock, timers=SMALL, seed=self.disk.operations + 1)
        self.moment.run(made.store, made.scheduler)
        return made

    def _again(self, *, power_lost: bool = False) -> None:
        self._made.stop()
        if power_lost:
            self.moment.power_off()
        self.moment.stop()
        self._made = self._open()

    def _from_now(self, seconds: int) -> int:
        return self.clock.wall_ms() // 1000 - START_S + seconds

    def _add(self, first: Occurrence, topic: str = TOPIC) -> Occurrence:
        self._number += 1
        first = first._replace(uuid=f"{self._number:08x}{first.uuid[8:]}")
        for each in walked(first):
            self.account.asked(each.id, each.at_s * 1000)
        self._made.add(first, topic=topic)
        self.account.answered(*[each.id for each in walked(first)])
        self._see()
        return first

    def _cancel(self, named: Occurrence, waits: Occurrence, topic: str = TOPIC) -> None:
        """Cancel by one id what waits under another."""
        left = [each.id for each in walked(waits)]
        for each in left:
            self.account.unsure(each)
        assert self._made.cancel(named, topic) is CancelEffect.CANCELLED
        for each in left:
            self.account.forbid(each)
        self._answered.append((topic, named))
        self._went(waits, "a cancel is durable")

    def _move(self, occurrence: Occurrence, seconds: int) -> None:
        """Move what waits to so many seconds from now; until that is answered it may come at either moment."""
        due_ms = self.clock.wall_ms() + seconds * 1000
        before_ms = self.account.promised[occurrence.id]
        self.account.promised[occurrence.id] = min(due_ms, before_ms)
        made = self._made
        moved = drive(made.timers.rescheduling(TOPIC, self._keys[occurrence.id], due_ms), made.scheduler)
        assert moved.outcome is CancelEffect.CANCELLED
        # Those behind it wait for their own moments, and for it.
        for each in walked(occurrence):
            own_ms = each.at_s * 1000 if each.id != occurrence.id else due_ms
            self.account.promised[each.id] = max(own_ms, due_ms)
        self._look(self._made)
        over = self._state(occurrence.id) == "delivered"
        self._went(occurrence, "it is moved", *([TIME + "is the last"] if over else []))

    def _advance(self, seconds: float) -> None:
        """Look every half second: what is due is due at whole ones."""
        for _ in range(int(seconds * 2)):
            self._made.scheduler.advance(0.5)
            self._see()

    # What can be seen

    def _went(self, occurrence: Occurrence, *events: str) -> None:
        self._look(self._made)
        self._walk.went(occurrence.id, self._state(occurrence.id), *events)

    def _see(self) -> None:
        self._look(self._made)
        for found in [*self._delivered, *self._waiting]:
            state, was = self._state(found), self._walk.states.get(found, "")
            if (was, state) == ("waiting", "delivered"):
                self._walk.went(found, state, TIME + ("has a next one" if self._has_next(found) else "is the last"))
            elif (was, state) == ("", "waiting"):
                first = int(found.split("-")[4]) == 0
                self._walk.went(found, state, "the add is durable" if first else "the one before it is delivered")
            else:
                self._walk.saw(found, state)

    def _has_next(self, found: str) -> bool:
        """Whether a later one of its loop is known by now: it waits, or is delivered."""
        *_, made, _, _, uuid = found.split("-", 7)
        later = [each.split("-", 7) for each in [*self._delivered, *self._waiting]]
        return any(each[7] == uuid and int(each[4]) > int(made) for each in later)

    def _look(self, made: World) -> None:
        """Read what is new in the topics, and tell the account what is delivered."""
        for name in (TIMER_TOPIC, TOPIC, GONE):
            topic = made.store.topics.get(name)
            for queue in topic.queues if topic else ():
                place = (name, queue.queue_id)
                offsets = range(max(queue.min_offset, self._looked_to.get(place, 0)), queue.max_offset)
                self._looked_to[place] = queue.max_offset
                for offset, (physical, size, _) in zip(offsets, queue.read(offsets.start, len(offsets)), strict=True):
                    if physical in self._looked:
                        continue
                    with contextlib.suppress(DamagedRecord, RecordGone):
                        self._note(name, offset, made.store.read(physical, size))
                        self._looked.add(physical)

    def _note(self, topic: str, offset: int, record: memoryview) -> None:
        message = message_of(record)
        if topic != TIMER_TOPIC:
            self._delivered.append(message.properties["KEYS"])
            self.account.see(message.physical, message.properties["KEYS"], message.store_ms)
        elif "TIMER_DEL_UNIQKEY" in message.properties:
            self._cancels.add(max(message.prepared_offset, 0))
        else:
            found = message.properties["KEYS"].split()[0]
            self._waiting.setdefault(found, {})[message.physical] = offset
            if message.physical == max(self._waiting[found]):
                self._keys[found] = message.properties["UNIQ_KEY"]

    def _state(self, found: str) -> str:
        """Where an occurrence is, told by the timers, the timer topic and its own topic."""
        if found in self._delivered:
            return "delivered"
        physical, offset = max(self._waiting[found].items())
        if self._made.store.failed is not None:
            return "undecided"
        timers = self._made.timers
        if physical in self._cancels and not timers.parts.is_pending(physical, offset):
            return "cancelled"
        return "refused" if physical in timers.due.refused else "waiting"

    def finish(self) -> None:
        """Start, with the topic that was gone, wait for the last of all, and ask again for what was cancelled."""
        self._looked.clear()
        self._delivered.clear()
        made = self._open()
        made.store.create_topic(GONE, 1)
        made.scheduler.advance(100)
        self._look(made)
        if made.timers.pending:
            self.account.open_ones.add(f"{made.timers.pending} occurrences")
        numbers: dict[str, int] = {}
        for found in self._delivered:
            *_, number, _, _, uuid = found.split("-", 7)
            if int(number) != numbers.get(uuid, -1) + 1:
                self.account.open_ones.add(f"{found}, which is out of order,")
            numbers[uuid] = int(number)
        for topic, occurrence in self._answered:
            if made.cancel(occurrence, topic) is not CancelEffect.CANCELLED:
                self.account.open_ones.add(f"the cancel of {occurrence.id}")
        made.close()
