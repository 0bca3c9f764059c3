"""docs/states.md: batches, which are whole or absent."""

from __future__ import annotations

import contextlib

import pytest

from broker.errors import DiskFull, MessageRefused
from broker.format.record import split
from broker.log.put import Put
from broker.store import Store
from pyddmq.testing import ManualScheduler, PowerCut
from tests.integration.store_tools import HOST, ROOT, open_store
from tests.integration.waiting_tools import make_durable, put_durably
from tests.lifecycle.scenario import DERIVED, MADE_ANEW, START_MS, Scenario
from tests.lifecycle.walk import Walk

TOPIC = "t"
MEMBERS = 4


class Batches(Scenario):
    """Appends batches over two queues, with single messages in between."""

    table = "states.md: Batches"
    losses = DERIVED
    spoils = MADE_ANEW
    saves = False

    def walk(self, walk: Walk) -> None:
        """Go along every row."""
        self._walk = walk
        self._open()
        self._refuse()
        for name in ("a", "b", "c"):
            self._append(name)
            self._flush(name)
            self._walk.went(name, self._state(name), "the one write")
            self._single()
        self._stop_before_the_write()
        self._stop_in_the_write()
        self._stop_before_the_answer()
        self._fill_the_disk()
        self._fail_syncs()
        self._append("last")
        self._flush("last")
        self._walk.went("last", self._state("last"), "the one write")
        self._store.close()

    def _refuse(self) -> None:
        with pytest.raises(MessageRefused):
            self._append("large", size=self._store.options.segment_bytes)
        self._walk.went("large", "refused" if self._state("large") == "absent" else "whole", "a member breaks a rule")

    def _stop_before_the_write(self) -> None:
        self._append("d")
        self._walk.saw("d", "staged")
        self._restart()
        self._walk.went("d", self._state("d"), "kill or power loss before the write")

    def _stop_in_the_write(self) -> None:
        self._append("e")
        self.disk.stop_after(0, path_part="commitlog")
        with pytest.raises(PowerCut):
            make_durable(self._store, self._scheduler)
        self._stopped()
        self._walk.went("e", self._state_on_disk("e"), "kill or power loss in the write")
        self._open()
        self._walk.went("e", self._state("e"), "the store is opened")
        assert self._store.recovery.batches_cut == 1

    def _stop_before_the_answer(self) -> None:
        self._append("f")
        self.disk.stop_after(1, path_part="commitlog")
        with pytest.raises(PowerCut):
            make_durable(self._store, self._scheduler)
        self._stopped()
        self._open()
        self._walk.went("f", self._state("f"), "kill after the write")

    def _fill_the_disk(self) -> None:
        self.disk.capacity_bytes = 0
        with contextlib.suppress(DiskFull):
            while True:
                self._single()
        with pytest.raises(DiskFull):
            self._append("full")
        self._walk.went("full", "refused" if self._state("full") == "absent" else "whole", "the disk has no room")
        self.disk.capacity_bytes = None

    def _fail_syncs(self) -> None:
        for name, power_lost in (("g", False), ("h", True)):
            self._append(name)
            self.disk.fail("sync", path_part="/commitlog/")
            make_durable(self._store, self._scheduler)
            failed = self._store.failed is not None and self._state(name) == "absent"
            self._walk.went(name, "undecided" if failed else self._state(name), "the sync fails")
            self.disk.heal()
            self._store.abandon()
            if power_lost:
                self.moment.power_off()
            self.moment.stop()
            self._open()
            self._walk.went(name, self._state(name), "power loss" if power_lost else "kill")

    # How it runs

    def _open(self) -> None:
        self._store = open_store(self.disk, clock=self.clock)
        self._scheduler = ManualScheduler(self.clock)
        self.moment.run(self._store, self._scheduler)
        self._store.create_topic(TOPIC, 2)
        self._report()

    def _restart(self) -> None:
        self._stopped()
        self._open()

    def _stopped(self) -> None:
        self._store.abandon()
        self.moment.stop()

    def _append(self, name: str, size: int = 150) -> None:
        members = [b"%b-%d" % (name.encode(), number) for number in range(MEMBERS)]
        topic = self._store.topics[TOPIC]
        puts = [Put(topic, number % 2, body.ljust(size, b"."), b"") for number, body in enumerate(members)]
        for body in members:
            self.account.asked(body)
        self.account.one(members)
        self._store.append(puts, born_ms=START_MS, born_host=HOST, atomic=True)
        self._walk.saw(name, "staged")

    def _flush(self, name: str) -> None:
        make_durable(self._store, self._scheduler)
        self.account.answered(*[b"%b-%d" % (name.encode(), number) for number in range(MEMBERS)])

    def _single(self) -> None:
        body = b"single-%d" % self.moment.random.randrange(1 << 60)
        self.account.asked(body)
        put_durably(self._store, self._scheduler, TOPIC, body.ljust(200, b"."))
        self.account.answered(body)

    # What can be seen

    def _state(self, name: str) -> str:
        self._report()
        there = [body for body, _ in self.account.visible.values() if str(body).startswith(f"b'{name}-")]
        return {0: "absent", MEMBERS: "whole"}.get(len(there), "torn")

    def _state_on_disk(self, name: str) -> str:
        folder = f"{ROOT}/commitlog"
        content = b"".join(self.disk.open(f"{folder}/{each}").read(0, 1 << 20) for each in self.disk.list(folder))
        there = sum(b"%b-%d." % (name.encode(), number) in content for number in range(MEMBERS))
        return {0: "absent", MEMBERS: "whole"}.get(there, "torn")

    def _report(self) -> None:
        self._tell_of(self._store)

    def _tell_of(self, store: Store) -> None:
        for queue in store.topics[TOPIC].queues:
            for physical, size, _ in queue.read(queue.min_offset, queue.max_offset - queue.min_offset):
                body = bytes(split(store.read(physical, size))[0]).rstrip(b".")
                self.account.see((physical, body), body)

    def finish(self) -> None:
        """Open, and write behind what is there."""
        store = open_store(self.disk, clock=self.clock)
        store.create_topic(TOPIC, 2)
        after = b"after %d" % self.disk.operations
        self.account.asked(after)
        store.put(TOPIC, after)
        self.account.answered(after)
        self._tell_of(store)
        store.close()
