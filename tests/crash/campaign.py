"""A campaign of kills: clients work, the node dies, and the ledger knows what it had promised.

The clients are those of the simulation, here on real sockets. A kill at random comes when a seeded number of things has
happened and publishes, deliveries and acks are in the middle; so every such kill catches something. A kill at a call
comes in a seeded phase of the node's life: while it recovers, works, reloads or drains.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from broker.features import ALL
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import SystemClock
from broker.store import Store
from tests.crash.edge import RealEdge, Stats
from tests.crash.moments import Phase, Planned
from tests.crash.outcome import Kill, Outcome
from tests.crash.process import NodeProcess
from tests.patient import PATIENCE_SECONDS
from tests.simulation.clients import PERFECT, Consumer, ConsumerHabits, Producer, ProducerHabits
from tests.simulation.halves import Checked, HalfAccount, HalfProducer
from tests.simulation.journaled import JournaledLedger
from tests.simulation.ledger import Ledger, PromiseBroken, Publish, Subscription
from tests.simulation.lines import Client, Surroundings
from tests.simulation.loops import TOPIC as LATER
from tests.simulation.loops import LoopProducer, check_loops
from tests.simulation.numbered import NumberedProducer
from tests.simulation.occurrences import GROUP as LOOPS
from tests.simulation.occurrences import OccurrenceLedger, OccurrenceReader
from tests.simulation.stored import (
    dead_letters,
    dead_occurrences,
    occurrences,
    stored_halves,
    stored_occurrences,
    stored_records,
)
from tests.simulation.waits import Walls
from tests.simulation.world import RULES, TIMEOUT_MS, settings, store_options, subscriptions
from tests.tried import tried

DEATH_SECONDS_MAX = 2.0
DEATH_PROGRESS = 150
"""For how long, and until so many things have happened, a call may not come before the node is killed without it."""
SMALL = {
    "segmentBytes": 131_072,
    "queueFileUnits": 100,
    "ackSegmentBytes": 4_096,
    "drainSeconds": 1,
    "commitIntervalMs": 300,
}
"""Sizes that make segments roll and the ack journal begin anew many times in a campaign."""


GROUPS = ("by-key", "by-path", "free", LOOPS)
WAIT_SHARE = 0.15
LOOK_SECONDS = 0.02
"""How often what is in the middle is counted, at the most: of a long campaign that takes milliseconds."""
RECENT = 300
"""Of so many of the latest publishes those that wait are counted."""
SETTLED_MS = 3_000
"""After the last moment of anything that waits: by then it was delivered."""


def due_ms(publish: Publish, ledger: Ledger) -> int:
    """The latest wall-clock moment at which a publish may come; 0 for one that does not wait."""
    if publish.wait is None:
        return 0
    return publish.wait.ms if publish.wait.kind == "at" else ledger.sent_ms(publish) + publish.wait.ms


class Campaign:
    """Kills one node again and again.

    Args:
        folder: For the node's files.
        seed: Of the workload and of the moments of the kills.
        planned: The kills.
        data: The data directory, where it is not in `folder`.
        power: Makes a kill a power loss: takes from the dead node's disk what may be lost, and says since when, in
            monotonic seconds, the ack journal was not synced: no ack that was answered before may be gone (D9).
        timeout_ms: Of deliveries; on a slow disk long enough for replies that wait for it.
        ack_flush: `sync`: no power loss may take an ack; `async`: those of its last moments may go (D9).
        strict_seconds: For how long a kill at random is put off until work of every kind is in the middle. On a disk or
            a machine so slow that nothing that waits is in time, it would never come.
    """

    def __init__(
        self,
        folder: Path,
        *,
        seed: int,
        planned: Sequence[Planned],
        data: Path | None = None,
        power: Callable[[], float] | None = None,
        timeout_ms: int = TIMEOUT_MS,
        ack_flush: str = "async",
        strict_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self._timeout_ms = timeout_ms
        self._ack_flush = ack_flush
        self._strict_seconds = strict_seconds
        wanted = self._settings = self._wanted()
        self._node = NodeProcess(folder, wanted, data=data)
        self._random = Random(f"crash {seed}")
        self._planned = list(planned)
        self._power = power
        self._clock = SystemClock()
        self._ledger = JournaledLedger(
            [replace(each, timeout=timeout_ms / 1000) for each in subscriptions()],
            ack_loss_seconds=0.0,
            walls=Walls(self._clock.wall_ms, self._clock.monotonic),
        )
        self._loop_ledger = OccurrenceLedger(
            [Subscription(group=LOOPS, topic=LATER, **(RULES | {"timeout": timeout_ms / 1000}))], ack_loss_seconds=0.0
        )
        self._halves = HalfAccount()
        self._outcome = Outcome(seed)
        self._errors: list[Exception] = []
        self._noticed = asyncio.Event()
        self._clients: list[Producer | Consumer | LoopProducer | HalfProducer | Checked] = []
        self._reloads = 0

    async def run(self) -> Outcome:
        """Run the campaign and hold its history against the promises.

        Raises:
            PromiseBroken: With the seed's history; the node's log is in the folder.
        """
        try:
            self._start()
            around = self._surroundings()
            self._begin(around)
            while self._planned:
                await self._kill(self._planned.pop())
            await self._settle(around)
            self._check()
        finally:
            self._node.close()
        return self._outcome

    def _surroundings(self) -> Surroundings:
        loop = asyncio.get_running_loop()
        return Surroundings(
            loop=loop,
            edge=RealEdge(loop),
            ledger=self._ledger,
            random=self._random,
            counts=self._outcome.events,
            consumer_address=lambda: self._node.consumer,
            producer_address=lambda: self._node.producer,
            failed=self._errors.append,
            noticed=self._noticed.set,
            exact=False,
            wall_ms=self._clock.wall_ms,
        )

    def _begin(self, around: Surroundings) -> None:
        habits = ProducerHabits(pause_seconds=0.01, keys=40, wait_share=WAIT_SHARE)
        for number in range(3):
            host = f"127.1.0.{number + 1}"
            topics = ("orders", "events")
            # One of them numbers its messages and sends again what the kill left open: none may be stored twice.
            kind = NumberedProducer if number == 2 else Producer
            self._clients.append(kind(host, host, around, replace(habits), topics=topics, compact=number == 0))
        for place, group in enumerate(("by-key", "by-path", "free")):
            for number in range(3):
                self._add_consumer(around, group, f"127.2.{place}.{number + 1}", ConsumerHabits(), number == 0)
        for number in range(2):
            self._add_consumer(around, LOOPS, f"127.2.3.{number + 1}", ConsumerHabits(), number == 0)
            self._clients.append(LoopProducer(around, number + 1, log_end=lambda: None, compact=number == 0))
            self._clients.append(HalfProducer(around, number + 1, self._halves))
            self._clients.append(Checked(around, number + 3, self._halves))
        for client in self._clients:
            client.connect()

    def _add_consumer(
        self, around: Surroundings, group: str, host: str, habits: ConsumerHabits, compact: bool
    ) -> Consumer:
        kind = OccurrenceReader if group == LOOPS else Consumer
        around = around._replace(ledger=self._loop_ledger if group == LOOPS else self._ledger)
        consumer = kind(
            host, host, around, habits, group=group, topic=None, timeout=self._timeout_ms / 1000, compact=compact
        )
        self._clients.append(consumer)
        return consumer

    async def _kill(self, planned: Planned) -> None:
        """Wait for the moment, have the node die, start again."""
        moment, reaper = planned.moment, planned.reaper
        outstanding = await self._busy(strictly=reaper is None)
        kill = Kill(moment=moment, reaper=reaper.name if reaper else "", pulls=self._pulls())
        if moment.phase is not Phase.RECOVERY:
            for name, count in outstanding.items():
                setattr(kill, name, count)
        if reaper is None:
            self._node.kill()
        elif moment.phase is Phase.RECOVERY:
            self._node.kill()
            self._end_life()
            if self._node.start(prefix=reaper.prefix(moment), command=reaper.command):
                kill.reached = await self._died()
            reaper.disarm()
        else:
            await self._begin_phase(planned)
            kill.reached = await self._died(draining=moment.phase is Phase.DRAIN)
            reaper.disarm()
        self._end_life()
        self._outcome.kills.append(kill)
        caught = [name for name, count in outstanding.items() if count]
        campaign = "crash" if self._power is None else "power loss"
        tried(campaign, kill.call, operations=caught, states=[moment.phase])
        loop = asyncio.get_running_loop()
        began = loop.time()
        self._start()
        kill.restart_seconds = loop.time() - began

    def _start(self) -> None:
        """Start the node in the way that its next death needs."""
        reaper = self._planned[-1].reaper if self._planned else None
        if reaper is None:
            assert self._node.start()
        else:
            assert self._node.start(command=reaper.command)

    def _outstanding(self) -> dict[str, int]:
        """Count what is in the middle now, by the names of `CAUGHT`."""
        now_ms = self._clock.wall_ms()
        latest = list(self._ledger.publishes.values())[-RECENT:]
        loops = [each for each in self._clients if isinstance(each, LoopProducer)]
        return {
            **self._ledger.outstanding(),
            "waits": sum(each.outcome == "stored" and due_ms(each, self._ledger) > now_ms for each in latest),
            "loops": sum(each.pending for each in loops),
            "halves": self._halves.open,
        }

    async def _begin_phase(self, planned: Planned) -> None:
        """Arm the reaper, and begin the drain or the reload that the moment lies in."""
        moment, reaper = planned.moment, planned.reaper
        assert reaper is not None
        reaper.arm(self._node.pid, moment)
        if moment.phase is Phase.RELOAD:
            self._reloads += 1
            self._node.configure(self._reloaded())
            self._node.signal(signal.SIGHUP)
        elif moment.phase is Phase.DRAIN:
            self._node.signal(signal.SIGTERM)

    def _wanted(self) -> dict[str, Any]:
        """Return the settings of the simulation, with small files."""
        wanted = settings(self._ack_flush)
        wanted["node"] |= SMALL
        for group in wanted["groups"]:
            for topic in group["topics"]:
                topic["timeout"] = self._timeout_ms
        return wanted

    def _reloaded(self) -> dict[str, Any]:
        """Return settings that renew one group's subscriptions (D22)."""
        wanted = self._wanted()
        for topic in wanted["groups"][2]["topics"]:
            topic["actions"] = [["PullServer"], ["NonBlockAsync", "PullServer"]][self._reloads % 2]
        return wanted

    async def _died(self, *, draining: bool = False) -> bool:
        """Wait for the node's death; False when the call did not come: it is killed without, or has drained."""
        loop = asyncio.get_running_loop()
        aim, deadline = self._progress() + DEATH_PROGRESS, loop.time() + PATIENCE_SECONDS
        code = await self._node.ended(DEATH_SECONDS_MAX)
        while code is None and (draining or self._progress() < aim) and loop.time() < deadline:
            code = await self._node.ended(DEATH_SECONDS_MAX)
        if code is None:
            self._node.kill()
            return False
        if code not in (0, -signal.SIGKILL):
            raise PromiseBroken(0, f"the node ended with {code}: {self._node.log.read_text()[-2000:]}")
        return code != 0

    def _end_life(self) -> None:
        """Enter the end of a process, and of the power where that is what it was, in the ledgers."""
        now = asyncio.get_running_loop().time()
        lost = 0.0 if self._power is None else now - self._power()
        for ledger in (self._ledger, self._loop_ledger):
            ledger.ended(
                power_lost=self._power is not None, time=now, seconds=0.0 if self._ack_flush == "sync" else lost
            )

    async def _busy(self, *, strictly: bool) -> dict[str, int]:
        """Wait until things have happened; `strictly`: and work of every kind is in the middle, if it comes to that.

        Returns:
            What is in the middle, counted once: what waits is due a moment later.
        """
        aim = self._progress() + self._random.randrange(50, 400 if strictly else 150)
        outstanding: dict[str, int] = {}
        now = asyncio.get_running_loop().time
        began: float | None = None
        looked = -LOOK_SECONDS

        def busy() -> bool:
            nonlocal outstanding, began, looked
            if self._progress() < aim or now() - looked < LOOK_SECONDS:
                return False
            outstanding = self._outstanding()
            looked = now()
            began = began or looked
            all_kinds = self._pulls() > 0 and all(outstanding.values())
            return all_kinds or not strictly or looked - began > self._strict_seconds

        await self._wait(busy)
        return outstanding

    def _pulls(self) -> int:
        """Calls of consumers that are unanswered now."""
        return sum(len(each.link.pending) for each in self._clients if each.link and isinstance(each, Consumer))

    async def _settle(self, around: Surroundings) -> None:
        """Have perfect clients finish everything."""
        for client in self._clients:
            if isinstance(client, Consumer):
                client.habits = PERFECT
            elif isinstance(client, Checked):
                client.perfect = True
            else:
                client.stopped = True
        for place, group in enumerate(GROUPS):
            self._add_consumer(around, group, f"127.4.0.{place + 1}", PERFECT, False).connect()
        stats = Stats(around, GROUPS)
        stats.connect()
        ends_ms = SETTLED_MS + max(
            *(due_ms(each, self._ledger) for each in self._ledger.publishes.values()),
            *(each.ends_ms() for each in self._clients if isinstance(each, LoopProducer)),
            self._clock.wall_ms(),
        )

        def settled() -> bool:
            now_ms = self._clock.wall_ms()
            # Whatever is undecided is asked about every half second.
            return stats.idle and now_ms > ends_ms and now_ms > self._halves.asked_ms + SETTLED_MS

        await self._wait(
            lambda: self._clock.wall_ms() > ends_ms and not self._node.waiting(),
            lambda: f"{self._node.waiting()} messages wait on",
        )
        await self._wait(
            settled, lambda: f"unfinished messages: {stats.lag}, last asked about at {self._halves.asked_ms}"
        )
        stats.stopped = True
        everybody: list[Client] = [*self._clients, stats]
        for each in everybody:
            each.stopped = True
            if each.link is not None:
                each.link.transport.abort()

    def _check(self) -> None:
        code = self._node.stop()
        if code != 0:
            raise PromiseBroken(0, f"the node ended with {code}: {self._node.log.read_text()[-2000:]}")
        store = Store.open(
            str(self._node.data),
            options=store_options(self._settings),
            features=ALL,
            disk=RealDisk(),
            clock=SystemClock(),
            random=Random(0),
            metrics=Metrics(),
        )
        try:
            self._ledger.check(stored_records(store, ("orders", "events")), dead_letters(store))
            check_loops([each for each in self._clients if isinstance(each, LoopProducer)], occurrences(store))
            uid_of = self._loop_ledger.uid_of
            self._loop_ledger.check(stored_occurrences(store, uid_of), dead_occurrences(store, uid_of))
            visible = stored_halves(store)
            self._halves.check(visible)
            self._ledger.judge(self._halves, visible)
        except PromiseBroken:
            self._ledger.journal.save(self._node.log.with_name("history.jsonl"))
            raise
        finally:
            store.close()
        self._outcome.acknowledged = sum(each.outcome == "stored" for each in self._ledger.publishes.values())
        self._outcome.delivered = self._outcome.events["delivered"]

    def _progress(self) -> int:
        return len(self._ledger.publishes) + self._outcome.events["delivered"]

    async def _wait(
        self, until: Callable[[], bool], what: Callable[[], str] = lambda: "the clients make no progress"
    ) -> None:
        """Wait for a condition that changes when a reply is read."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_SECONDS
        while not until():
            self._noticed.clear()
            try:
                await asyncio.wait_for(self._noticed.wait(), deadline - loop.time())
            except TimeoutError as error:
                raise PromiseBroken(0, what()) from error
            if self._errors:
                raise self._errors[0]
