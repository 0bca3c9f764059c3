"""One seeded run: a whole node in memory, clients with bad habits, faults on a schedule, and the ledger at the end.

Everything is drawn from the seed: network, disk, workload and schedule have a source of randomness each, so that a
change to one leaves the others as they were.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import Any, Protocol

import yaml

from actions.client_factories import Outside
from actions.registry import Registry
from broker.errors import DamagedRecord
from broker.features import ALL
from broker.options import StoreOptions
from broker.runtime.metrics import Metrics
from broker.runtime.steps import run_now
from broker.store import Store
from conf import Loaded, loads
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.node.parts import Seams
from proxy.node.reload import Reloader
from proxy.node.views import ReloadResult
from proxy.recording.trace_export import Send
from pyddmq.testing import NetworkFaults, Process, SimDisk, SimNetwork, SimSyncs, VirtualClock, VirtualLoop
from pyddmq.testing.sim_disk import CRASH_MODES
from tests.fakes.http import SimHttp
from tests.fakes.virtual_threads import VirtualThreads
from tests.insides import opened_of
from tests.simulation import halves
from tests.simulation.clients import LEVELS_MS, PERFECT, Consumer, ConsumerHabits, Producer, ProducerHabits
from tests.simulation.deeds import Deeds
from tests.simulation.expired import ExpiredRecords
from tests.simulation.fleeting import FleetingAccount, FleetingProducer
from tests.simulation.halves import Checked, HalfAccount, HalfProducer
from tests.simulation.journaled import JournaledLedger
from tests.simulation.ledger import Ledger, PromiseBroken, Subscription
from tests.simulation.lines import SimEdge, Surroundings
from tests.simulation.loops import TOPIC as LATER
from tests.simulation.loops import LoopProducer, check_loops
from tests.simulation.numbered import NumberedProducer
from tests.simulation.occurrences import GROUP as LOOPS
from tests.simulation.occurrences import OccurrenceLedger, OccurrenceReader
from tests.simulation.power import ACK_LOSS_SECONDS
from tests.simulation.stored import (
    dead_letters,
    dead_occurrences,
    occurrences,
    stored_halves,
    stored_occurrences,
    stored_records,
    stored_retries,
)
from tests.simulation.waits import Walls

DATA = "/data"
TIMEOUT_MS = 1_500
STEP_MS_MAX = 12 * 3_600_000
"""More than the steps of a run can have put the wall clock back by."""
OPERATIONS = ("publishes", "deliveries", "acks", "waits", "halves", "loops", "numbered")
PUSHES, OPENS_SLOWLY = "pushes", "opens slowly"
"""Lasting changes, as `World.edits` has them."""
STATES = (
    "acks synced", "log unsynced", "retry topic", "stopKey", "stopQueue", "slow actions", "timers alone", PUSHES,
    OPENS_SLOWLY,
)  # fmt: skip
LATE, LATE_TOPICS = "late", ("orders", "events")
"""A group that a reload brings, and that begins at the end of these."""
LOG_LOSS_SECONDS = 0.5
"""How old an acknowledged publish may be and still go with the power under `flush: async`."""

AWAITS, BLOCKS = "tests.simulation.waiting:Awaits", "tests.simulation.waiting:Blocks"
NodeFactory = Callable[..., Node]
Edit = Callable[[dict[str, Any]], None]


class Inside(Protocol):
    """What runs in the node's process beside it."""

    def serves(self, node: Node) -> None:
        """The node serves; called as its process."""
        ...

    def stops(self) -> None:
        """The node is about to stop in order."""
        ...


def settings(
    ack_flush: str = "async",
    flush: str = "sync",
    *,
    retry_topic: bool = False,
    on_exhausted: str = "deadLetter",
    waits: bool = False,
) -> dict[str, Any]:
    """Return the configuration as its YAML would be read; a fresh copy.

    `retry_topic`: failed messages of the group without order go through its retry topic. `on_exhausted`: of the group
    by key. `waits`: groups have actions that await, and that block.
    """
    keyed = {"timeout": TIMEOUT_MS, "maxRetry": 3, "retryIntervals": [60, 250], "maxPullBatchSize": 8}
    free = {**keyed, "retryTopic": True, "retryIntervals": [0, 300]} if retry_topic else keyed
    before = {"actions": ["Async", AWAITS, "PullServer"]} if waits else {}
    path = {"orderKey": "$['case id']", "actions": ["Json", "Async", "PullServer"]}
    if waits:
        path["actions"] = ["Json", "Async", BLOCKS, AWAITS, "PullServer"]
    return {
        "node": {
            "producerPort": 9613,
            "consumerPort": 9713,
            "data": DATA,
            "flush": flush,
            "ackFlush": ack_flush,
            "segmentBytes": 131_072,
            "queueFileUnits": 100,
            "timerLogFileBytes": 8_192,
            "ackSegmentBytes": 4_096,
            "commitIntervalMs": 1_000,
            "drainSeconds": 5,
            "maxMessageBytes": 32_768,
            "messageDelayLevel": " ".join(f"{ms // 1000}s" for ms in LEVELS_MS),
            # The ledger wants to see every record again at the end, and the disk gets full on purpose.
            "retentionDiskRatio": 0,
            "retentionDiskRatioForced": 0,
            **halves.SETTINGS,
        },
        "topics": {
            "orders": {"queues": 4},
            "events": {"queues": 3},
            LATER: {"queues": 2},
            halves.TOPIC: {"queues": 2},
        },
        "groups": [
            {
                "group": "by-key",
                "topics": [{"topic": "orders", "orderKey": "KEY", "onExhausted": on_exhausted, **keyed, **before}],
            },
            {
                "group": "by-path",
                "topics": [{"topic": "orders", **path, **keyed}, {"topic": "events", **path, **keyed}],
            },
            {
                "group": "free",
                "topics": [{"topic": "orders", "tags": ["red"], **free}, {"topic": "events", **free}],
            },
            {"group": LOOPS, "topics": [{"topic": LATER, **keyed}]},
        ],
    }


RULES: dict[str, Any] = {"timeout": TIMEOUT_MS / 1000, "intervals": 2, "retry_max": 3}


def subscriptions(*, stops: bool = False, changes: bool = False) -> list[Subscription]:
    """Return the same groups as the ledger sees them, but for that of the loops; `changes`: and one that comes late."""
    return [
        Subscription(group="by-key", topic="orders", order="KEY", stops=stops, **RULES),
        Subscription(group="by-path", topic="orders", order="PATH", json=True, **RULES),
        Subscription(group="by-path", topic="events", order="PATH", json=True, **RULES),
        Subscription(group="free", topic="orders", tags=frozenset({"red"}), rules_vary=True, **RULES),
        Subscription(group="free", topic="events", rules_vary=True, **RULES),
        *(Subscription(group=LATE, topic=topic, order="KEY", **RULES) for topic in LATE_TOPICS if changes),
    ]


@dataclass(slots=True)
class Report:
    """What a run did.

    Attributes:
        seed: Replays it.
        faults: How often each kind of fault was made.
        events: What clients and network did, by name.
        outstanding: What the kills and power losses caught in the middle, summed.
        published: Messages that the node acknowledged.
        seconds: Virtual time of the run.
        turns: Turns of the loop.
    """

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    outstanding: Counter[str] = field(default_factory=Counter)
    published: int = 0
    seconds: float = 0.0
    turns: int = 0


class World:
    """A node, its network, disk and clients.

    Args:
        seed: Of everything.
        make_node: Builds the node; tests hand in broken ones.
        faults: How bad the network is.
        ack_flush: `sync` or `async` (D9).
        flush: `sync` or `async` (D1).
        retry_topic, on_exhausted, waits: As for `settings`.
        node: Settings of the node besides, or in place of, those of `settings`. With `retentionBytes` the node deletes
            what all groups have finished, and the account holds for that, too.
        groups: The only groups that consume; None: all.
        make_ledger: The account's class.
        deeds: What clients do; else it is drawn.
        changes: A group comes late.
        sync_seconds_max: The longest sync of the disk.
    """

    def __init__(
        self,
        seed: int,
        *,
        make_node: NodeFactory = Node,
        faults: NetworkFaults | None = None,
        ack_flush: str = "async",
        flush: str = "sync",
        retry_topic: bool = False,
        on_exhausted: str = "deadLetter",
        waits: bool = False,
        node: Mapping[str, Any] = MappingProxyType({}),
        groups: Collection[str] | None = None,
        make_ledger: type[JournaledLedger] = JournaledLedger,
        deeds: Deeds | None = None,
        changes: bool = False,
        sync_seconds_max: float = 0.002,
    ) -> None:
        self.seed = seed
        self.deeds = deeds or Deeds()
        self._sync_seconds_max = sync_seconds_max
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.disk = SimDisk()
        self._threads_random = Random(f"threads {seed}")
        self.send_spans: Send | None = None
        """Takes the spans of nodes that trace."""
        self.disk_random = Random(f"disk {seed}")
        self.network = SimNetwork(self.loop, Random(f"network {seed}"), faults)
        self.walls = Walls(self.clock.wall_ms, self.loop.time)
        self._node_settings, self._groups = node, groups
        known = subscriptions(stops=on_exhausted != "deadLetter", changes=changes)
        self.ledger = make_ledger(
            [each for each in known if self._consumes(each.group)],
            ack_loss_seconds=0.0 if ack_flush == "sync" else ACK_LOSS_SECONDS,
            walls=self.walls,
        )
        self.loop_ledger = OccurrenceLedger(
            [Subscription(group=LOOPS, topic=LATER, **RULES)], ack_loss_seconds=self.ledger.ack_loss_seconds
        )
        for ledger in self.ledgers:
            ledger.expires = "retentionBytes" in node
        self.report = Report(seed)
        self.ack_flush = ack_flush
        self.flush = flush
        self._power_lost = False
        self.failed_at: float | None = None
        """When the disk failed, if it did since the node served."""
        outside = Outside(random=Random(f"outside {seed}"), http=SimHttp(self.network))
        self.registry = Registry(outside=outside)
        self.retry_topic = retry_topic
        self.on_exhausted = on_exhausted
        self.waits = waits
        self.edits: dict[str, Edit] = {}
        """Changes of the configuration that last, by what they change."""
        self.inside: list[Inside] = []
        """What the program of the node does besides."""
        self.config = self.load(self.settings()).config
        self.process: Process | None = None
        self.node: Node | None = None
        self.expired = ExpiredRecords(lambda: self.node)
        self.clients: list[Producer | Consumer | LoopProducer | HalfProducer | Checked | FleetingProducer] = []
        self.halves = HalfAccount()
        self.fleeting = FleetingAccount()
        self.cutting = False
        self._make_node = make_node
        self.errors: list[Exception] = []
        self._graveyard: list[Any] = []

    # The node's life.

    def start(self) -> Node:
        """Start a node on what the disk holds and wait until it serves; clients may come while it recovers."""
        node, task = self.begin()
        self.run(until=task.done, seconds=60)
        task.result()
        self.serves(node)
        return node

    def serves(self, node: Node) -> None:
        """Go on with a node that has started."""
        assert self.process is not None
        self.node = node
        for each in self.inside:
            self.process.run(each.serves, node)
        if "retentionBytes" in self._node_settings:
            opened_of(node).store.retention.holds.append(self.expired)
        if self.flush == "async" and self._power_lost:
            store = opened_of(node).store
            # What has come since is what waited.
            last = store.recovery.last_record
            kinds = (
                stored_records(store, ("orders", "events"), self.expired),
                stored_occurrences(store, self.loop_ledger.uid_of, self.expired),
            )
            retries = dict(stored_retries(store, "free", self.expired))
            for ledger, records in zip(self.ledgers, kinds, strict=True):
                there = {each.place: each.uid for each in records if each.physical <= last}
                gone = ledger.taken(there, retries, seconds=LOG_LOSS_SECONDS, failed_at=self.failed_at)
                self.report.events["gone"] += len(gone)
            since = self.ledger.cuts[-1].since
            self.halves.undone(since)
            for client in self.clients:
                if isinstance(client, LoopProducer):
                    for account in client.accounts.values():
                        account.undone(since)
        self._power_lost, self.failed_at = False, None

    def begin(self) -> tuple[Node, asyncio.Task[Opened]]:
        """Start a node without waiting for anything."""
        assert self.node is None
        self.process = Process(f"node {self.ledger.life}")
        seams = Seams(
            loop=self.loop,
            clock=self.clock,
            disk=self.disk,
            randomness=Random(f"node {self.seed} {self.ledger.life}"),
            network=self.network,
            syncs=SimSyncs(
                self.disk,
                self.loop,
                Random(f"syncs {self.seed} {self.ledger.life}"),
                seconds_max=self._sync_seconds_max,
            ),
            threads=VirtualThreads(self.loop, self._thread_seconds),
            send_spans=self.send_spans,
            step_pause_seconds=Random(f"steps {self.seed} {self.ledger.life}").choice((0.0, 0.005, 0.05)),
        )
        node = self._make_node(self.config, seams=seams, registry=self.registry)
        return node, self.process.run(self.loop.create_task, node.start())

    def _thread_seconds(self) -> float:
        """How long the next blocking call takes."""
        return self._threads_random.random() * 0.02

    def kill(self, *, power: bool = False, failed_at: float | None = None, left: Sequence[str] = CRASH_MODES) -> None:
        """End the node at once: SIGKILL keeps what was written, a power loss only what was synced.

        Args:
            power: Whether the power is lost.
            failed_at: When a sync failed; the 100 ms of D9 count from there, for nothing is synced after it.
            left: What of each file's unsynced writes, as `SimDisk.crash`.
        """
        assert self.process is not None
        self.report.outstanding.update(self.ledger.outstanding())
        # What was being written may be there in part.
        self.report.events["torn"] += power or self.cutting
        served = self.node is not None
        self._graveyard.append((self.process, self.node))
        self.process.kill()
        self.process = self.node = None
        if power and failed_at is not None:
            for ledger in self.ledgers:
                ledger.unsynced_from(failed_at)
        self._ended(power_lost=power, ready=served)
        self._power_lost |= power
        if power:
            self.disk.crash(self.disk_random, modes=left)
        else:
            self.disk.kill()

    def stop(self) -> None:
        """End the node in good order."""
        assert self.process is not None
        assert self.node is not None
        for each in self.inside:
            self.process.run(each.stops)
        task = self.process.run(self.loop.create_task, self.node.stop())
        self.run(until=task.done, seconds=60)
        task.result()
        self._graveyard.append((self.process, self.node))
        self.process.kill()
        self.process = self.node = None
        self._ended(power_lost=False)

    def _ended(self, *, power_lost: bool, ready: bool = True) -> None:
        for ledger in self.ledgers:
            ledger.ended(power_lost=power_lost, time=self.loop.time(), ready=ready)

    @property
    def ledgers(self) -> tuple[Ledger, ...]:
        """The accounts of all groups."""
        return self.ledger, self.loop_ledger

    def ledger_of(self, group: str) -> Ledger:
        """The account that a group's messages are in."""
        return self.loop_ledger if group == LOOPS else self.ledger

    def reload(self, change: Edit = lambda _: None, *, accept_loss: bool = False) -> ReloadResult:
        """Change the configuration's text and have it read again, as SIGHUP and `pyddmq reload` do."""
        assert self.process is not None
        assert self.node is not None
        wanted = self.settings()
        change(wanted)
        reloader = Reloader(self.node, lambda: self.load(wanted))
        result = self.process.run(lambda: run_now(reloader.reloading(accept_loss=accept_loss)))
        if result.accepted:
            self.config = self.node.in_force.config
        return result

    def settings(self) -> dict[str, Any]:
        wanted = settings(
            self.ack_flush,
            self.flush,
            retry_topic=self.retry_topic,
            on_exhausted=self.on_exhausted,
            waits=self.waits,
        )
        wanted["node"].update(self._node_settings)
        wanted["groups"] = [each for each in wanted["groups"] if self._consumes(each["group"])]
        for edit in self.edits.values():
            edit(wanted)
        return wanted

    def _consumes(self, group: str) -> bool:
        return self._groups is None or group in self._groups

    def load(self, wanted: dict[str, Any]) -> Loaded:
        text = yaml.safe_dump(wanted, sort_keys=False)
        return loads(text, file="simulated.yaml", actions=self.registry)

    # Clients.

    def surroundings(self, number: int = -1) -> Surroundings:
        """Return what a client is given; its number in the run draws its randomness."""
        return Surroundings(
            loop=self.loop,
            edge=SimEdge(self.network),
            ledger=self.ledger,
            random=Random(f"client {self.seed} {number}"),
            counts=self.report.events,
            consumer_address=lambda: ("127.0.0.1", 9713),
            producer_address=lambda: ("127.0.0.1", 9613),
            failed=self.errors.append,
            wall_ms=self.clock.wall_ms,
            walls=self.walls,
            deeds=self.deeds,
        )

    def add_producer(
        self, habits: ProducerHabits | None = None, *, compact: bool = False, number: int | None = None
    ) -> Producer:
        """Connect a producer; `number` tells it from others, and draws its randomness."""
        number = self._number(number)
        producer = Producer(
            f"producer {number}",
            f"10.1.0.{number}",
            self.surroundings(number),
            habits or ProducerHabits(),
            topics=("orders", "events"),
            compact=compact,
            number=number,
        )
        self.clients.append(producer)
        producer.connect()
        return producer

    def add_consumer(
        self,
        group: str,
        habits: ConsumerHabits | None = None,
        *,
        topic: str | None = None,
        compact: bool = False,
        number: int | None = None,
    ) -> Consumer:
        """Connect a pull client; `number` as for producers."""
        number = self._number(number)
        around = self.surroundings(number)._replace(ledger=self.ledger_of(group))
        consumer = (OccurrenceReader if group == LOOPS else Consumer)(
            f"consumer {number}",
            f"10.2.0.{number}",
            around,
            habits or ConsumerHabits(),
            group=group,
            topic=topic,
            timeout=TIMEOUT_MS / 1000,
            compact=compact,
            names=number % 2 == 1,
        )
        self.clients.append(consumer)
        consumer.connect()
        return consumer

    def add_loops(self, *, compact: bool = False, number: int | None = None) -> LoopProducer:
        """Connect a producer of loops; `number` as for producers."""
        number = self._number(number)
        producer = LoopProducer(self.surroundings(number), number, log_end=self.log_end, compact=compact)
        producer.forgets = "retentionBytes" in self._node_settings
        self.clients.append(producer)
        producer.connect()
        return producer

    def add_halves(self, *, number: int | None = None) -> HalfProducer:
        """Connect a producer of transactions; `number` as for producers."""
        number = self._number(number)
        producer = HalfProducer(self.surroundings(number), number, self.halves)
        self.clients.append(producer)
        producer.connect()
        return producer

    def add_checked(self, *, number: int | None = None) -> Checked:
        """Connect a producer that answers checks; `number` as for producers."""
        number = self._number(number)
        checked = Checked(self.surroundings(number), number, self.halves)
        self.clients.append(checked)
        checked.connect()
        return checked

    def add_fleeting(self, *, number: int | None = None) -> FleetingProducer:
        """Connect a producer to a topic that comes and goes; `number` as for producers."""
        number = self._number(number)
        producer = FleetingProducer(self.surroundings(number), number, self.fleeting)
        self.clients.append(producer)
        producer.connect()
        return producer

    def log_end(self) -> int:
        """End of the log now; beyond all of it while there is no node."""
        return 1 << 62 if self.node is None else opened_of(self.node).store.end

    def _number(self, number: int | None) -> int:
        """Numbers that are not given begin where planned clients end."""
        return 50 + len(self.clients) if number is None else number

    def under_way(self) -> list[str]:
        """Name what a fault now comes in the middle of, of `OPERATIONS`."""
        counts = self.ledger.outstanding()
        return [name for name in OPERATIONS if (counts[name] if name in counts else self.is_under_way(name))]

    def is_under_way(self, name: str) -> bool:
        """Whether something of `OPERATIONS` is."""
        if name == "waits":
            return self.node is not None and self._waiting() > 0
        if name == "halves":
            return self.halves.open > 0
        if name == "loops":
            return any(each.pending for each in self.clients if isinstance(each, LoopProducer))
        if name == "numbered":
            return any(each.on_its_way is not None for each in self.clients if isinstance(each, NumberedProducer))
        return self.ledger.outstanding()[name] > 0

    def states(self) -> list[str]:
        """Name what sets this run apart, of `STATES`."""
        found = {
            "acks synced": self.ack_flush == "sync",
            "log unsynced": self.flush == "async",
            "retry topic": self.retry_topic,
            self.on_exhausted: True,
            "slow actions": self.waits,
            "timers alone": self._groups is not None,
            **dict.fromkeys(self.edits, True),
        }
        return [name for name in STATES if found.get(name)]

    # Time.

    def step_clock(self, delta_ms: int) -> None:
        """Step the wall clock."""
        before = self.clock.wall_ms()
        self.clock.step(delta_ms)
        self.walls.stepped(before, self.clock.wall_ms())

    def run(self, *, seconds: float, until: Callable[[], bool] | None = None) -> bool:
        """Let virtual time pass; a broken promise or an unhandled exception ends the run here."""
        done = self.loop.run(until, seconds=seconds, turns_max=400_000)
        if self.errors:
            raise self.errors[0]
        if self.loop.errors and not self.cutting:
            raise self.loop.errors[0].get("exception") or PromiseBroken(0, str(self.loop.errors[0]))
        return done

    def report_broken(self, error: PromiseBroken) -> None:
        """End the run with what something that looks on has found."""
        self.errors.append(error)

    # The end.

    def settle(self, *, seconds: float = 120.0, by_hand: Callable[[], None] = lambda: None) -> None:
        """Take all faults away, let perfect clients finish everything, and wait until nothing is left to do.

        Args:
            seconds: How long that may take.
            by_hand: Ends what waits for an operator; called while something does.
        """
        self.network.faults = NetworkFaults()
        if self.node is None:
            self.start()
        if self._waiting():
            # Steps back have put moments hours away.
            self.run(seconds=8)
            self.step_clock(STEP_MS_MAX)
        for client in self.clients:
            if isinstance(client, Consumer):
                client.habits = PERFECT
            elif isinstance(client, Checked):
                client.perfect = True
            else:
                client.stopped = True
        if self.halves.fates:
            self.add_checked().perfect = True
        for group in self.config.groups:
            self.add_consumer(group, PERFECT)
        end = self.loop.time() + seconds
        while self.run(until=lambda: self._nothing_left() or self._stopped(), seconds=end - self.loop.time()):
            if not self._stopped():
                break
            by_hand()
            self.run(seconds=0.01)
        else:
            left = f"{self.lag()}, {self._undecided()} undecided halves of which {self.halves.never} may stay"
            raise PromiseBroken(6, f"after {seconds} s of perfect clients there is still: {left}")
        self.run(seconds=TIMEOUT_MS / 1000 * 3)

    def check(self) -> Report:
        """Hold the whole history against the promises; the node is stopped and the store read by itself."""
        self.stop()
        store = Store.open(
            DATA,
            options=store_options(self.settings()),
            features=ALL,
            disk=self.disk,
            clock=self.clock,
            random=Random(0),
            metrics=Metrics(),
        )
        try:
            self.ledger.check(
                stored_records(store, ("orders", "events"), self.expired), dead_letters(store, self.expired)
            )
            check_loops(
                [each for each in self.clients if isinstance(each, LoopProducer)], occurrences(store, self.expired)
            )
            visible = stored_halves(store, self.expired)
            self.halves.check(visible)
            self.ledger.judge(self.halves, visible)
            self.fleeting.check(self.fleeting.lives(store, self.expired), doubtful=self.ledger.damaged_timers)
            uid_of = self.loop_ledger.uid_of
            dead = dead_occurrences(store, uid_of, self.expired)
            self.loop_ledger.check(stored_occurrences(store, uid_of, self.expired), dead)
        except DamagedRecord as error:
            raise PromiseBroken(1, str(error)) from error
        finally:
            store.close()
        self.report.events["retried"] = self.ledger.retries.count
        self.report.published = sum(publish.outcome == "stored" for publish in self.ledger.publishes.values())
        self.report.seconds = self.loop.time() - 1_000
        self.report.turns = self.loop.turns
        self.report.events.update(self.network.counts)
        return self.report

    def _nothing_left(self) -> bool:
        return not any(
            client.link.pending for client in self.clients if client.link and not isinstance(client, Consumer | Checked)
        ) and not (self.lag() or self._waiting() or self._undecided() > self.halves.never)

    def _stopped(self) -> bool:
        """Whether a message waits for an operator."""
        assert self.node is not None
        return (
            self.on_exhausted != "deadLetter"
            and self._consumes("by-key")
            and any(topic.stopped_total for topic in self.node.in_force.groups["by-key"].stats().topics)
        )

    def _undecided(self) -> int:
        """Return how many halves wait for their decision."""
        assert self.node is not None
        return opened_of(self.node).transactions.halves.states.undecided

    def _waiting(self) -> int:
        """Return how many messages wait for their moment."""
        assert self.node is not None
        return sum(level.pending for level in opened_of(self.node).delays.levels.values()) + sum(
            (opened_of(self.node).timers.pending, opened_of(self.node).timers.entering.lag)
        )

    def lag(self) -> Mapping[str, int]:
        """Return messages unfinished per group, topic and queue, where there are any.

        From the trackers: the groups' figures read the log for ages, and this is asked thousands of times.
        """
        assert self.node is not None
        return {
            f"{name} {queue.topic} {queue.qid}": queue.queue.max_offset - queue.tracker.watermark
            for name, group in self.node.in_force.groups.items()
            for queue in group.group_queues()
            if queue.queue.max_offset != queue.tracker.watermark
        }


def store_options(wanted: dict[str, Any]) -> StoreOptions:
    """Return how a store of these settings is laid out."""
    node = wanted["node"]
    return StoreOptions(
        segment_bytes=node["segmentBytes"],
        queue_file_units=node["queueFileUnits"],
        message_bytes_max=node["maxMessageBytes"],
    )
