"""docs/states.md: dead letters, and what becomes of them by redriving."""

from __future__ import annotations

import contextlib
from typing import Any

from broker.errors import DamagedRecord, DiskFull, RecordGone, StoreFailed
from broker.format.record import prepared_offset, split
from broker.log.put import Put
from broker.retention import RetentionLimits
from broker.retry.letters import letter_topic, letters
from broker.store import Store
from pyddmq.testing import ManualScheduler
from tests.integration.redrive_tools import dead_lettered, opened, redrive, redrives
from tests.integration.store_tools import HOST
from tests.integration.waiting_tools import make_durable, retain
from tests.lifecycle.scenario import DERIVED, MADE_ANEW, Scenario
from tests.lifecycle.walk import Walk

GROUP, TOPIC = "g", "t"
SEGMENT = 4096


class DeadLetters(Scenario):
    """Dead letters that are redriven one by one, and all of them in the end."""

    table = "states.md: Dead letters"
    losses = DERIVED
    spoils = MADE_ANEW

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._open()
        self._redrive_some()
        self._refuse()
        self._fill_the_disk()
        self._kill()
        self._fail_syncs()
        self._delete_files()
        self._store.close()

    # What happens

    def _redrive_some(self) -> None:
        for body in (b"a", b"b", b"c"):
            self._dead_letter(body)
        self._redrive(b"a", dry=True)
        self._walk.went(b"a", self._state(b"a"), "dry run")
        self._redrive(b"a")
        self._walk.went(b"a", self._state(b"a"), "redrive, the record")
        answer = self._redrive(b"a", copy=0)
        assert answer["already"] == 1
        self._walk.went(b"a", self._state(b"a"), "another redrive")
        self._redrive(b"a", again=True, copy=2)
        self._walk.went(b"a", self._state(b"a"), "a redrive that wants it again")

    def _refuse(self) -> None:
        answer = self._redrive(b"b", to="nowhere", copy=0)
        assert answer["refused"] == 1
        self._walk.went(b"b", self._state(b"b"), "redrive, it cannot go")

    def _fill_the_disk(self) -> None:
        self.disk.capacity_bytes = 0
        with contextlib.suppress(DiskFull):
            while True:
                self._store.put("other", b"x")
        with contextlib.suppress(DiskFull, OSError):
            self._redrive(b"b")
        self._walk.went(b"b", self._state(b"b"), "redrive, the disk is full")
        self.disk.capacity_bytes = None

    def _kill(self) -> None:
        [letter] = [each for each in self._letters() if self._body(each) == b"b"]
        self.account.asked((b"b", 1))
        # Appended in a turn whose flush never comes.
        self._known.append(letter, self._known.plan(letter))
        self._again()
        self._walk.went(b"b", self._state(b"b"), "kill, power loss during a redrive")
        self._walk.went(b"a", self._state(b"a"), "kill, power loss")

    def _fail_syncs(self) -> None:
        for body, event in (
            (b"e", "kill, and the log has the record"),
            (b"f", "power loss, and the log has no record"),
        ):
            self._dead_letter(body)
            self.account.unsure((body, 1))
            self.disk.fail("sync", path_part="/commitlog/")
            [letter] = [each for each in self._letters() if self._body(each) == body]
            self._known.append(letter, self._known.plan(letter))
            make_durable(self._store, self._scheduler)
            with contextlib.suppress(StoreFailed):
                self._known.append(letter, self._known.plan(letter))
                self.account.open_ones.add("a redrive after a failed sync")
            self._walk.went(body, self._state(body), "redrive, the sync fails")
            self.disk.heal()
            self._again(power_lost=event.startswith("power"))
            self._walk.went(body, self._state(body), event)

    def _delete_files(self) -> None:
        for number in range(10):
            put = Put(self._store.topics["other"], 0, b"%d" % number * 900, b"")
            self._store.append([put], born_ms=0, born_host=HOST)
            make_durable(self._store, self._scheduler)
        self.clock.advance(11)
        self._store.checkpoint()
        self.moment.saved()
        self._store.retention.limits = RetentionLimits(log_bytes=2 * SEGMENT)
        self._report()
        for body in (b"b", b"c"):
            # Nobody redrives any more what retention took.
            self.account.unsure((body, 1))
        retain(self._store, self._scheduler)
        for body in (b"a", b"b", b"c"):
            self._walk.went(body, self._state(body), "its log file goes")
        self._store.retention.limits = RetentionLimits()
        self._dead_letter(b"d")
        self._redrive(b"d")
        self._walk.saw(b"d", self._state(b"d"))

    # How it runs

    def _open(self) -> None:
        self._store = opened(self.disk, self.clock, segment_bytes=SEGMENT)
        self._scheduler = ManualScheduler(self.clock)
        self.moment.run(self._store, self._scheduler)
        self._store.create_topic("other", 1)
        self._known = redrives(self._store, self.disk)

    def _again(self, *, power_lost: bool = False) -> None:
        self._store.abandon()
        if power_lost:
            self.moment.power_off()
        self.moment.stop()
        self._open()

    def _dead_letter(self, body: bytes) -> None:
        # The dead letter's own record decides whether there is one to redrive.
        self.account.asked((body, 1))
        dead_lettered(self._store, body, scheduler=self._scheduler)
        self.account.answered((body, 1))
        self._walk.saw(body, self._state(body))

    def _redrive(self, body: bytes, *, copy: int = 1, **options: Any) -> dict[str, Any]:
        if copy > 1:
            self.account.asked((body, copy))
        [letter] = [each for each in self._letters() if self._body(each) == body]
        assert letter.message is not None
        wanted = {"id": letter.message.id}
        answer = redrive(self._store, self._known, scheduler=self._scheduler, wanted=wanted, **options)
        if copy > 1:
            self.account.answered((body, copy))
        return answer

    # What can be seen

    def _letters(self) -> list[Any]:
        topic = letter_topic(self._store, GROUP)
        return [] if topic is None else [each for each in letters(self._store, topic) if each.message is not None]

    def _body(self, letter: Any) -> bytes:
        return bytes(letter.message.body())

    def _state(self, body: bytes) -> str:
        self._report()
        found = [letter for letter in self._letters() if self._body(letter) == body]
        if not found:
            return "gone"
        if self._known.earlier(found[-1]):
            return "redriven"
        return "dead" if self._store.failed is None else "undecided"

    def _report(self) -> None:
        report(self, self._store)

    def finish(self) -> None:
        """Start, redrive all, and again: the second time nothing goes."""
        store = opened(self.disk, self.clock, segment_bytes=SEGMENT)
        known = redrives(store, self.disk)
        if letter_topic(store, GROUP) is not None:
            redrive(store, known)
            if redrive(store, known)["redriven"]:
                self.account.open_ones.add("what is redriven a second time")
        report(self, store)
        store.close()


def report(scenario: Scenario, store: Store) -> None:
    """Tell the account which records of the topic replace a dead letter: the first, second ... of its body."""
    account = scenario.account
    for queue in store.topics[TOPIC].queues:
        for physical, size, _ in queue.read(queue.min_offset, queue.max_offset - queue.min_offset):
            try:
                record = store.read(physical, size)
            except (DamagedRecord, RecordGone):
                continue
            if physical in account.visible or not prepared_offset(record):
                continue
            body = bytes(split(record)[0])
            copies = sum(isinstance(thing, tuple) and thing[0] == body for thing, _ in account.visible.values())
            account.see(physical, (body, copies + 1))
