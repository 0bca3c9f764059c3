"""docs/states.md: messages of an orderly consumer that fail in place, with their counts, or go to the dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.consumer import OrderlyConsumer, OrderlyStatus
from broker.consumer.counters import SAVE_ERRORS
from broker.consumer.orderly import OrderlyWork
from broker.consumer.retry_counts import FILE
from broker.queues.topics import dead_letter_topic
from tests.lifecycle.listening import GROUP, Listening, Program, read
from tests.lifecycle.retries import DEAD, LAST_FAILURE
from tests.lifecycle.scenario import OFFSETS, POSITIONS, Moment
from tests.lifecycle.walk import Walk
from tests.unit.consumer_world import ROOT

SUSPEND, ROLLBACK = OrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, OrderlyStatus.ROLLBACK
FAILURE = "the listener fails, retries are left"
TOPICS = ("t", dead_letter_topic(GROUP))
RETRIES = 2


class OrderlyProgram(Program):
    """A program that tells the account how often a message had failed whenever it was handed out."""

    def start(self) -> OrderlyConsumer:
        """Start its consumer."""
        return self.orderly(reconsume_max=RETRIES, suspend_ms=100)

    def answer(self, batch: Sequence[Any]) -> Any:
        """Answer as planned; what failed so often never comes with fewer failures again, unless it succeeded."""
        [message] = batch
        self.account.hand(_given(message.body, message.reconsume_times))
        for times in range(message.reconsume_times):
            self.account.finish(_given(message.body, times))
        answer = super(Program, self).answer(batch)
        if answer is OrderlyStatus.SUCCESS:
            self.account.see(("success", message.body), message.body)
            self.forget(message.body)
        return answer

    def forget(self, *bodies: bytes) -> None:
        """Counts go with the commit, or with the folder that has them."""
        for thing in list(self.account.finished):
            if isinstance(thing, tuple) and (not bodies or thing[1] in bodies):
                del self.account.finished[thing]


def _given(body: bytes, times: int) -> tuple[str, bytes, int]:
    return ("failed so often", body, times)


class OrderlyRetries(Listening):
    """One consumer that is told what to answer, and stopped, and killed."""

    table = "states.md: Orderly consumers"
    root = ROOT
    losses = ((), OFFSETS, POSITIONS, ("pyddmq",))
    saves = False

    def __init__(self, moment: Moment) -> None:
        super().__init__(moment)
        self._known: dict[int, bytes] = {}
        self._consumer: OrderlyConsumer | None = None

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._world = self._program = OrderlyProgram(self.moment, held=True)
        self._world.store.create_topic("other", 1)
        self._start()
        self._succeed_and_fail()
        self._fail_for_good()
        self._fill_the_disk()
        self._kill()
        self._fail_syncs()
        self._world.delays.close()

    # What happens

    def _succeed_and_fail(self) -> None:
        for body in (b"a", b"b"):
            self._send(body)
        self._handed(b"a")
        self._end(b"a")
        self._walk.saw(b"a", self._state(b"a"))
        self._again()
        self._walk.went(b"a", self._state(b"a"), "kill, power loss before the commit")
        self._start()
        self._handed(b"a")
        self._end(b"a")
        self._walk.saw(b"a", self._state(b"a"))
        self._world.advance(6)
        for times in range(RETRIES):
            self._handed(b"b")
            self._fail(b"b", times)
            self._walk.went(b"b", self._state(b"b"), FAILURE)
            if times:
                self._again()
                self._start()
            else:
                self._world.advance(0.2)
        self._handed(b"b")
        self._roll_back(b"b")
        self._handed(b"b")

    def _roll_back(self, body: bytes) -> None:
        self._world.auto_commit = False
        self._world.answers[body.decode()] = [ROLLBACK]
        self._end(body)
        self._walk.went(body, self._state(body), "the listener rolls back")
        self._world.auto_commit = True
        self._world.advance(0.2)

    def _fail_for_good(self) -> None:
        """The second one is dead-lettered before anybody gets it, the last one after a kill that takes the commit."""
        self._send(b"\x00packed", sys_flag=0x1)
        self._fail(b"b", RETRIES)
        self._walk.went(b"b", self._state(b"b"), LAST_FAILURE, DEAD)
        self._walk.went(b"\x00packed", self._state(b"\x00packed"), "its body cannot be unpacked", DEAD)
        self._again()
        self._walk.went(b"b", self._state(b"b"), "kill, power loss before the commit")
        self._start()

    def _fill_the_disk(self) -> None:
        self._send(b"f")
        self._handed(b"f")
        for times in range(RETRIES):
            self._fail(b"f", times)
            self._world.advance(0.2)
        self._fill()
        self._fail(b"f", RETRIES)
        self._walk.went(b"f", self._state(b"f"), LAST_FAILURE, "the disk is full")
        assert self._consumer is not None
        self._consumer.stop()
        self._world.scheduler.run_until_idle()
        self._consumer = None
        self._walk.went(b"f", self._state(b"f"), "the disk is full, and")
        self.disk.capacity_bytes = None
        self._start()
        self._walk.went(b"f", self._state(b"f"), "`consumer_retries.json` says that its dead letter", DEAD)

    def _kill(self) -> None:
        """While a listener runs, and while a dead letter waits for space: the next process goes on with that."""
        self._send(b"p")
        self._handed(b"p")
        self._again()
        self._walk.went(b"p", self._state(b"p"), "kill, power loss")
        self._start()
        self._handed(b"p")
        for times in range(RETRIES):
            self._fail(b"p", times)
            self._world.advance(0.2)
        self._refuse_dead_letters()
        self._fail(b"p", RETRIES)
        self._walk.went(b"p", self._state(b"p"), LAST_FAILURE)
        self.disk.capacity_bytes = None
        self._again()
        self._walk.went(b"p", self._state(b"p"), "kill, power loss")
        self._start()
        self._walk.went(b"p", self._state(b"p"), "`consumer_retries.json` says that its dead letter", DEAD)

    def _fail_syncs(self) -> None:
        """A sync fails while a dead letter is written: a life each, since the store writes no more."""
        for body, event in (
            (b"v", "kill, and the log has the record"),
            (b"w", "power loss, and the log has no record"),
        ):
            self._send(body)
            self._handed(body)
            for times in range(RETRIES):
                self._fail(body, times)
                self._world.advance(0.2)
            self._world.consumers.shared.persist()
            self._world.settle()
            self.disk.fail("sync", path_part="/commitlog/")
            self._fail(body, RETRIES)
            self._walk.went(body, self._state(body), LAST_FAILURE, "the sync fails")
            assert self._consumer is not None
            self._consumer.stop()
            self._world.scheduler.run_until_idle()
            self._walk.saw(body, self._state(body))
            self.disk.heal()
            self._again(power_lost=event.startswith("power"))
            self._walk.went(body, self._state(body), event)
            self._start()
            self._world.scheduler.run_until_idle()
        self._walk.went(b"w", self._state(b"w"), "`consumer_retries.json` says that its dead letter", DEAD)

    # How it runs

    def _start(self) -> None:
        self._consumer = self._program.start()

    def _again(self, *, power_lost: bool = False) -> None:
        self._world.delays.stop()
        self._world.store.abandon()
        if power_lost:
            self.moment.power_off()
        self.moment.stop()
        self._world.open()
        self._consumer = None

    def _refuse_dead_letters(self) -> None:
        """Leave room for small files, and none for the log."""
        self._fill()
        self.disk.capacity_bytes = self.disk.used_bytes() + 8192

    def _fail(self, body: bytes, times: int) -> None:
        """Fail, which makes times + 1 failures; once the turn is over they are on the disk."""
        self._world.answers[body.decode()] = [SUSPEND]
        self._end(body)
        if times < RETRIES:
            self.account.finish(_given(body, times))

    # What can be seen

    def _state(self, body: bytes) -> str:
        read(self._world, self._known, *TOPICS)
        [place] = [place for place in sorted(self._known) if self._known[place] == body][-1:]
        letters = self._world.store.topics.get(TOPICS[1])
        for queue in letters.queues if letters else ():
            if any(physical == place for physical, _, _ in queue.read(0, queue.max_offset)):
                self.account.see(place, body)
                return "dead"
        offset = [unit[0] for unit in self._world.store.topics["t"].queues[0].read(0, 1000)].index(place)
        work = self._consumer.works.get(("t", 0)) if self._consumer else None
        if isinstance(work, OrderlyWork):
            if body in self._running():
                return "running"
            to_dead_letter = work._to_dead_letter
            if to_dead_letter and to_dead_letter[0][0].offset == offset:
                return "burying" if self._world.store.failed is None else "undecided"
        return "finished" if offset < (self._world.committed() or 0) else "unfinished"

    def finish(self) -> None:
        """Start, answer everything with success, and look at the dead letters."""
        known: dict[int, bytes] = {}
        lost = not self.disk.list(f"{ROOT}/pyddmq")
        world = OrderlyProgram(self.moment, held=False)
        if lost:
            world.forget()
        world.start()
        world.advance(60)
        if world.count(SAVE_ERRORS, FILE):
            self.account.open_ones.add("consumer_retries.json, which cannot be read,")
        read(world, known, TOPICS[1])
        for physical, body in known.items():
            self.account.see(physical, body)
        world.consumers.close()
        world.delays.close()
        world.store.close()
