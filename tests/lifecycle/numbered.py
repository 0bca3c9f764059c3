"""docs/states.md: messages with numbers, which are stored once however often they are sent."""

from __future__ import annotations

from broker.deduplication.deduplication import FILE, OLDER, Deduplication, WindowLimits
from broker.errors import DamagedRecord
from broker.format.record import split
from broker.log.put import Done, Put
from broker.retention import RetentionLimits
from broker.store import Store
from pyddmq.testing import ManualScheduler
from tests.integration.keyed_tools import NAME, key, memory
from tests.integration.store_tools import HOST, open_store
from tests.integration.waiting_tools import make_durable, retain
from tests.lifecycle.scenario import DERIVED, MADE_ANEW, START_MS, Scenario
from tests.lifecycle.walk import NotInTable, Walk

TOPIC = "t"
LIMITS = WindowLimits(messages=4, producers=2)
OTHERS = (NAME[:-1] + b"1", NAME[:-1] + b"2")
ANEW = NAME[:-1] + b"3"


class Numbered(Scenario):
    """One producer sends, alone and in batches, and again; others make the node forget it."""

    table = "states.md: Numbered messages"
    losses = DERIVED
    spoils = MADE_ANEW

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._next = 0
        self._pending: list[int] = []
        self._name = NAME
        self._open()
        self._send_and_again()
        self._stop_before_the_write()
        self._stop_before_the_answer()
        self._batches()
        self._leave_the_log()
        self._be_forgotten()
        self._dedup.close()
        self._store.close()

    def _send_and_again(self) -> None:
        self._ask(1)
        self._flush()
        self._ask(1)
        self._walk.went(1, self._state(1), "sent")
        assert self._judge([1]) == "staged"
        self._walk.went(1, "staged", "sent again")
        self._flush()
        self._walk.went(1, self._state(1), "its flush ends")
        assert self._judge([1]) == "stored"
        self._walk.went(1, "stored", "sent again")
        for _ in range(8):
            self._ask(1)
            self._flush()
        self._walk.went(1, self._judge([1]), "enough messages follow")
        self._walk.went(1, self._judge([1]), "sent again")

    def _stop_before_the_write(self) -> None:
        self._ask(1)
        number = self._pending[0]
        self._walk.went(number, self._state(number), "sent")
        self._restart()
        self._walk.went(number, self._judge([number]), "a stop, and it is not in the log")
        self._again()
        self._walk.went(number, self._state(number), "sent again")
        self._flush()
        self._walk.went(number, self._state(number), "its flush ends")

    def _stop_before_the_answer(self) -> None:
        self._ask(1)
        number = self._pending[0]
        self._walk.went(number, self._state(number), "sent")
        self._written()
        self._restart()
        self._walk.went(number, self._judge([number]), "a stop, and it is in the log")
        self._again()

    def _batches(self) -> None:
        for count in (3, 6, 2):
            self._ask(count)
            self._flush()
            self._save()
        self._ask(3)
        # What is staged is not in the checkpoint.
        self._save()
        self._restart()
        self._again()
        self._flush()

    def _leave_the_log(self) -> None:
        self._ask(1)
        number = self._pending[0]
        self._walk.went(number, self._state(number), "sent")
        self._flush()
        self._walk.went(number, self._state(number), "its flush ends")
        store = self._store
        store.retention.holds.append(self._dedup)
        store.retention.limits = RetentionLimits(log_bytes=2 * store.options.segment_bytes)
        for _ in range(2):
            self._fill()
            self._checkpoint()
            retain(store, self._scheduler)
        self._walk.went(number, self._judge([number]), "its record leaves the log")

    def _be_forgotten(self) -> None:
        self._ask(1)
        number = self._pending[0]
        self._walk.went(number, self._state(number), "sent")
        self._flush()
        self._walk.went(number, self._state(number), "its flush ends")
        for each in (number, 1):
            self._walk.saw(each, self._judge([each]))
        self._save()
        for name in OTHERS:
            self._name, self._next = name, 0
            self._ask(1)
            self._flush()
        for each in (number, 1):
            self._walk.went(each, self._judge([each], NAME), "its producer is silent")
        self._walk.went(number, self._judge([number], NAME), "sent again")

    # What a producer does

    def _is_in_the_log(self) -> bool:
        """Whether the log has a message of the producer; what retention took it says no more of."""
        store, position, keys = self._store, self._store.min_offset, b"UNIQ_KEY\x01%b" % self._name
        while position < store.end:
            records, position = store.walk(position, 64)
            if any(keys in record.properties for record in records):
                return True
        return False

    def _begin_anew(self) -> None:
        """Do as a producer that was forgotten: somebody took the checkpoint away, and retention the records."""
        if self._dedup.judge([key(self._next, self._name)]).places is not None:
            raise NotInTable("a producer of whom nothing is left is answered as if it were known")
        self._name, self._next, self._pending = ANEW, 0, []

    def _ask(self, count: int) -> None:
        """Send the next messages for the first time."""
        self._pending = list(range(self._next, self._next + count))
        for number in self._pending:
            self.account.asked(self._body(number))
        self._again()

    def _again(self) -> None:
        """Send what was not answered, as it was sent; what is known is answered when it is durable."""
        if not self._pending:
            return
        keys = [key(number, self._name) for number in self._pending]
        judged = self._dedup.judge(keys)
        if judged.places is None:
            raise NotInTable(f"{keys[0].decode()} was sent in order and is answered as behind a gap")
        if judged.places:
            self._store.commit.when_reported(self._answered(self._pending))
            return
        topic = self._store.topics[TOPIC]
        puts = [
            Put(topic, number % 2, self._body(number), b"UNIQ_KEY\x01%b\x02" % each, unique_key=each)
            for number, each in zip(self._pending, keys, strict=True)
        ]
        done = self._answered(self._pending)
        positions = self._store.append(puts, born_ms=START_MS, born_host=HOST, atomic=len(puts) > 1, done=done)
        self._dedup.stored(judged, [position.physical for position in positions])

    def _answered(self, numbers: list[int]) -> Done:
        def done(error: Exception | None) -> None:
            if error is None and self._pending == numbers:
                self.account.answered(*[self._body(number) for number in numbers])
                self._next, self._pending = numbers[-1] + 1, []

        return done

    def _body(self, number: int) -> bytes:
        return b"%b-%d" % (self._name, number)

    def _flush(self) -> None:
        make_durable(self._store, self._scheduler)

    def _written(self) -> None:
        """Have what is staged in the log, and tell nobody."""
        self._store.index.log.write()
        self._store.index.log.sync()

    # What the broker does

    def _open(self) -> None:
        self._store = open_store(self.disk, clock=self.clock)
        self._scheduler = ManualScheduler(self.clock)
        self.moment.run(self._store, self._scheduler)
        self._store.create_topic(TOPIC, 2)
        self._dedup: Deduplication = memory(self._store, self.disk, limits=LIMITS)
        self._tell_of(self._store)

    def _restart(self) -> None:
        self._store.abandon()
        self.moment.stop()
        self._open()

    def _save(self) -> None:
        self._dedup.begin_writing()
        self.moment.saved()

    def _checkpoint(self) -> None:
        self._store.checkpoint()
        self.clock.advance(11)
        self._store.checkpoint()
        self.moment.saved()

    def _fill(self) -> None:
        """Write so much that the log has new files; of nobody."""
        topic = self._store.topics[TOPIC]
        for _ in range(8):
            body = b"fill-%d" % self.moment.random.randrange(1 << 60)
            self.account.asked(body)
            put = Put(topic, 0, body.ljust(900, b"."), b"")
            self._store.append([put], born_ms=START_MS, born_host=HOST)
            self._flush()
            self._tell_of(self._store)

    # What can be seen

    def _state(self, number: int) -> str:
        self._tell_of(self._store)
        body = self._body(number)
        if any(seen == body for seen, _ in self.account.visible.values()):
            return "stored"
        return "staged" if self._store.unsettled else "unsent"

    def _judge(self, numbers: list[int], name: bytes | None = None) -> str:
        """State of messages as an answer to their producer tells it."""
        keys = [key(number, name or self._name) for number in numbers]
        places = self._dedup.judge(keys).places
        if places is None:
            return "forgotten"
        if not places:
            return "unsent"
        if max(places) >= self._store.end:
            return "staged"
        gone = [
            place == OLDER or self._dedup.record_of(each, place) is None
            for each, place in zip(keys, places, strict=True)
        ]
        return "older" if any(gone) else "stored"

    def _tell_of(self, store: Store) -> None:
        for queue in store.topics[TOPIC].queues:
            for physical, size, _ in queue.read(queue.min_offset, queue.max_offset - queue.min_offset):
                try:
                    body = bytes(split(store.read(physical, size))[0]).rstrip(b".")
                except DamagedRecord:
                    continue
                self.account.see((physical, body), body)

    def finish(self) -> None:
        """Open, send again what was not answered, and go on behind it."""
        path = f"{self.root}/{FILE}"
        checkpoint = self.disk.exists(path) and path not in self.disk.bad_pages
        self._store = open_store(self.disk, clock=self.clock)
        self._scheduler = ManualScheduler(self.clock)
        self._store.create_topic(TOPIC, 2)
        self._dedup = memory(self._store, self.disk, limits=LIMITS)
        if self._next and not checkpoint and not self._is_in_the_log():
            self._begin_anew()
        for _ in range(2):
            if self._pending:
                self._again()
                self._store.flush()
        assert not self._pending
        if self._next:
            self._ask(2)
            self._store.flush()
        self._tell_of(self._store)
        self._dedup.close()
        self._store.close()
