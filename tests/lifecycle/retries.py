"""docs/states.md: messages of a concurrent consumer that fail, through the retry topic or to the dead letters."""

from __future__ import annotations

from broker.consumer import ConcurrentConsumer, ConcurrentStatus
from broker.consumer.concurrent import ConcurrentWork
from broker.consumer.dead_lettering import DeadLettering
from broker.format.properties import PROPERTIES_BYTES_MAX, encode_properties
from broker.queues.topics import dead_letter_topic, retry_topic
from broker.scheduled.delay.levels import SCHEDULE_TOPIC
from tests.insides import leaving_of, unfinished_of
from tests.lifecycle.listening import GROUP, Listening, Program, read
from tests.lifecycle.scenario import DERIVED, MADE_ANEW
from tests.lifecycle.walk import Walk
from tests.unit.consumer_world import ROOT

TOPICS = ("t", retry_topic(GROUP), SCHEDULE_TOPIC, dead_letter_topic(GROUP))
LATER, WANTED_NONE = 1, -1
"""Delay levels that the listener asks for."""

FAILURE = "the listener fails, retries are left"
LAST_FAILURE = "the listener fails, no retries are left"
SENT = "the record in the schedule topic is durable"
DEAD = "`consumer_retries.json` says where its record will be"


class Retries(Listening):
    """One consumer that is told what to answer; a second group reads its dead letters."""

    table = "states.md: Concurrent consumers"
    root = ROOT
    losses = DERIVED
    spoils = MADE_ANEW
    saves = False

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._known: dict[int, bytes] = {}
        self._world = Program(self.moment, held=True)
        self._world.store.create_topic("other", 1)
        self._consumer: ConcurrentConsumer | None = None
        self._succeed_and_fail()
        self._fail_for_good()
        self._fill_the_disk()
        self._damage()
        self._fail_a_dead_letter()
        self._fail_syncs()
        self._kill()
        self._world.delays.close()

    # What happens

    def _succeed_and_fail(self) -> None:
        for body in (b"a", b"b", b"c"):
            self._send(body)
        self._start()
        self._end(b"a")
        self._walk.saw(b"a", self._state(b"a"))
        for body in (b"b", b"c"):
            self._end(body, LATER)
            self._walk.went(body, self._state(body), FAILURE, SENT)
            self.account.finish(self._first(body))
        self._kill_before_the_commit(b"b")
        self._world.advance(1)
        for body in (b"b", b"c"):
            self._walk.went(body, self._state(body), "its time has come", "it is handed")
        self._end(b"b")
        self._walk.saw(b"b", self._state(b"b"))

    def _kill_before_the_commit(self, body: bytes) -> None:
        """What was sent back stays so, though the offset is not written; a success that is not is forgotten."""
        self._again()
        self._walk.went(body, self._state(body), "kill, power loss")
        self._walk.went(b"a", self._state(b"a"), "kill, power loss before the commit")
        self._start()
        self._end(b"a")
        self._walk.saw(b"a", self._state(b"a"))

    def _fail_for_good(self) -> None:
        self._end(b"c", LATER)
        self._walk.went(b"c", self._state(b"c"), LAST_FAILURE, DEAD)
        self._send(b"\x00packed", sys_flag=0x1)
        self._walk.went(b"\x00packed", self._state(b"\x00packed"), "its body cannot be unpacked", DEAD)
        self._send(b"x", block=encode_properties({"long": "x" * (PROPERTIES_BYTES_MAX - 120)}))
        self._handed(b"x")
        self._end(b"x", LATER)
        self._walk.went(b"x", self._state(b"x"), FAILURE, "it can never be stored", DEAD)

    def _fill_the_disk(self) -> None:
        for body in (b"f", b"h"):
            self._send(body)
            self._handed(body)
        self._fill()
        self._end(b"f", LATER)
        self._walk.went(b"f", self._state(b"f"), FAILURE, "the disk is full")
        self._end(b"h", WANTED_NONE)
        self._walk.went(b"h", self._state(b"h"), LAST_FAILURE, "the disk is full")
        self._stop()
        for body in (b"f", b"h"):
            self._walk.went(body, self._state(body), "the disk is full, and")
        self.disk.capacity_bytes = None
        self._consumer = self._world.concurrent(reconsume_max=1)
        self._walk.went(b"h", self._state(b"h"), "`consumer_retries.json` says that its dead letter", DEAD)
        self._handed(b"f")
        self._end(b"f")
        self._walk.saw(b"f", self._state(b"f"))

    def _damage(self) -> None:
        for body, level, event in ((b"m", LATER, FAILURE), (b"n", WANTED_NONE, LAST_FAILURE)):
            self._send(body)
            self._handed(body)
            self.account.unsure(body)
            # The magic, which every read of a record compares.
            at, size = self._first(body), self._world.store.options.segment_bytes
            self.disk.flip_bit(f"{ROOT}/commitlog/{at - at % size:020d}", at % size + 4)
            self._end(body, level)
            self._walk.went(body, self._state(body), event, "its record is damaged or gone")

    def _fail_a_dead_letter(self) -> None:
        world = self._world
        world.answers["c"] = [ConcurrentStatus.RECONSUME_LATER]
        world.delay_level = WANTED_NONE
        mourner = world.consumers.concurrent("mourner", {dead_letter_topic(GROUP): "*"}, world.listener("m"))
        mourner.start()
        world.scheduler.run_until_idle()
        letter = ("letter", b"c")
        self._walk.begins(letter, "unfinished")
        self._walk.saw(letter, "running" if b"c" in self._running() else "unfinished")
        world.end(self._running().index(b"c"))
        [work] = [each for each in mourner.works.values() if each.name.topic == dead_letter_topic(GROUP)]
        assert isinstance(work, ConcurrentWork)
        state = "burying" if leaving_of(work) else "unfinished" if 0 in unfinished_of(work) else "lost"
        self._walk.went(letter, state, LAST_FAILURE, "it is a dead letter itself")

    def _fail_syncs(self) -> None:
        """A sync fails while a record is written: a life each, since the store writes no more."""
        in_room, in_letters = (
            "kill, and the log has the record in the schedule",
            "kill, and the log has the record in `%DL",
        )
        for body, level, failure, event in (
            (b"t", LATER, FAILURE, in_room),
            (b"u", LATER, FAILURE, "power loss, and the log has no record"),
            (b"v", WANTED_NONE, LAST_FAILURE, in_letters),
            (b"w", WANTED_NONE, LAST_FAILURE, "power loss, and the log has no record"),
        ):
            self._send(body)
            self._handed(body)
            self._world.consumers.shared.persist()
            self._world.settle()
            self.disk.fail("sync", path_part="/commitlog/")
            self._end(body, level)
            self._walk.went(body, self._state(body), failure, "the sync fails")
            self._stop(wholly=False)
            self._walk.saw(body, self._state(body))
            self.disk.heal()
            self._again(power_lost=event.startswith("power"))
            self._walk.went(body, self._state(body), event)
            self._consumer = self._world.concurrent(reconsume_max=1)
            self._world.scheduler.run_until_idle()
            if body == b"u":
                self._handed(body)
                self._end(body)
                self._walk.saw(body, self._state(body))
            elif body == b"w":
                self._walk.went(body, self._state(body), "`consumer_retries.json` says that its dead letter", DEAD)

    def _kill(self) -> None:
        for body in (b"p", b"q", b"r"):
            self._send(body)
            self._handed(body)
        self._fill()
        self._end(b"q", LATER)
        self._walk.went(b"q", self._state(b"q"), FAILURE, "the disk is full")
        self._end(b"r", WANTED_NONE)
        self._walk.went(b"r", self._state(b"r"), LAST_FAILURE, "the disk is full")
        self._again()
        self.disk.capacity_bytes = None
        for body in (b"p", b"q", b"r"):
            self._walk.went(body, self._state(body), "kill, power loss")
        self._walk.went(b"c", self._state(b"c"), "kill, power loss before the commit")

    # How it runs

    def _start(self) -> None:
        self._consumer = self._world.concurrent(reconsume_max=1)
        for body in {body for body in self._known.values() if self._walk.states.get(body) == "unfinished"}:
            self._handed(body)

    def _stop(self, *, wholly: bool = True) -> None:
        assert self._consumer is not None
        self._consumer.stop()
        self._world.scheduler.run_until_idle()
        assert self._consumer.stopped is wholly
        if wholly:
            self._consumer = None

    def _again(self, *, power_lost: bool = False) -> None:
        self._world.delays.stop()
        self._world.store.abandon()
        if power_lost:
            self.moment.power_off()
        self.moment.stop()
        self._world.open()
        self._consumer = None

    # What can be seen

    def _first(self, body: bytes) -> int:
        return self._places(body)[0][3]

    def _places(self, body: bytes) -> list[tuple[str, int, int, int]]:
        """Topic, queue, offset and commit-log offset of a message's records, in the log's order."""
        self._read()
        found = []
        for name in TOPICS:
            topic = self._world.store.topics.get(name)
            for queue in topic.queues if topic else ():
                units = queue.read(queue.min_offset, queue.max_offset - queue.min_offset)
                for offset, (physical, _, _) in enumerate(units, queue.min_offset):
                    if self._known.get(physical) == body:
                        found.append((name, queue.queue_id, offset, physical))
        return sorted(found, key=lambda place: place[3])

    def _read(self) -> None:
        read(self._world, self._known, *TOPICS)

    def _state(self, body: bytes) -> str:
        name, queue_id, offset, physical = self._places(body)[-1]
        if name == SCHEDULE_TOPIC:
            return "delayed"
        if name == dead_letter_topic(GROUP):
            self.account.see(physical, body)
            return "dead"
        work = self._consumer.works.get((name, queue_id)) if self._consumer else None
        if isinstance(work, ConcurrentWork):
            leaving = leaving_of(work).get(offset)
            if leaving is not None and self._world.store.failed is not None:
                return "undecided"
            if leaving is not None:
                return "burying" if isinstance(leaving, DeadLettering) else "sending back"
            if body in self._running():
                return "running"
            if offset < work.reader.next and offset not in unfinished_of(work):
                return "finished" if ("success", body) in self.account.visible else "lost"
        return "unfinished"

    def finish(self) -> None:
        """Start, answer everything with success, let all retries end, and look at the dead letters."""
        world = Program(self.moment, held=False)
        world.concurrent(reconsume_max=1)
        world.advance(60)
        known: dict[int, bytes] = {}
        read(world, known, dead_letter_topic(GROUP))
        for physical, body in known.items():
            self.account.see(physical, body)
        world.consumers.close()
        world.delays.close()
        world.store.close()
