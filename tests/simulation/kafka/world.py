"""One seeded run over Kafka: three whole nodes in memory, a cluster, clients with bad habits, faults on a schedule."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import yaml

from actions.client_factories import Outside
from actions.registry import Registry
from conf import Config, loads
from proxy.node.node import Node
from proxy.node.parts import Seams
from pyddmq.testing import NetworkFaults, Process, SimDisk, SimNetwork, SimSyncs, VirtualClock, VirtualLoop
from tests.fakes.http import SimHttp
from tests.fakes.kafka.client import SimClient
from tests.fakes.kafka.cluster import SimKafka
from tests.fakes.kafka.groups import Member
from tests.fakes.kafka.member import SimMember
from tests.fakes.virtual_threads import VirtualThreads
from tests.simulation.clients import LEVELS_MS, PERFECT, Consumer, ConsumerHabits, Producer, ProducerHabits
from tests.simulation.facts import PromiseBroken, Publish, Stamp
from tests.simulation.halves import SETTINGS as HALVES
from tests.simulation.kafka.account import AGAIN_SECONDS, AWAY, Account, Rules, Spot, check_publishes
from tests.simulation.kafka.history import History, Ledger, Trouble
from tests.simulation.lines import SimEdge, Surroundings
from tests.simulation.waiting import Opens
from tests.simulation.world import NodeFactory
from upstream.kafka.link import Commit, KafkaFailure, KafkaPartition, KafkaRecord

NODES = ("a", "b", "c")
SESSION_SECONDS = 3.0
REVOKE_SECONDS = 1.0
TIMEOUT_MS = 1_500
OPENS = "tests.simulation.waiting:Opens"
TOPICS = {"orders": 4, "events": 2}
"""With their partitions."""
GROUPS = ("by-key", "by-path", "free")
SHAKY = {"shaky": 2}
"""A topic whose logs go back, and that is created again; `SHAKEN` alone reads it, and all of its log once."""
SHAKEN = "shaken"
ORDERED = frozenset({"by-key"})
SETTLE_SECONDS = 90.0
WAKE_SECONDS = 0.1
WAITED = {"later": 2, "paid": 2}
"""Topics of loops and of transactions."""
WAITING_TOPIC, WAITING_PARTITIONS = "__pyddmq_waiting", 3
_TURNS_MAX = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """How the run is configured."""

    seed: int
    protocol: str = "classic"
    ack_flush: str = "async"
    takeover: str = "prompt"
    membership: str = "pulls"
    waits: bool = False
    """Messages wait: timers, delays, loops and halves."""
    opens: bool = False
    """Actions take seconds to open and to close, and do not open now and then."""
    big: bool = False
    """Some messages have up to a megabyte."""


def settings(name: str, way: Way) -> dict[str, Any]:
    """Return the configuration of one node as its YAML would be read."""
    wanted = _settings(name, way)
    if way.opens:
        for group in wanted["groups"]:
            for topic in group["topics"]:
                actions = topic.get("actions", ["PullServer"])
                topic["actions"] = [*actions[:-1], OPENS, actions[-1]]
    return wanted


def _settings(name: str, way: Way) -> dict[str, Any]:
    keyed = {"timeout": TIMEOUT_MS, "maxRetry": 3, "retryIntervals": [60, 250], "maxPullBatchSize": 8}
    number = NODES.index(name)
    waits: dict[str, Any] = {"waiting": {"partitions": WAITING_PARTITIONS}} if way.waits else {}
    own = {"messageDelayLevel": " ".join(f"{ms // 1000}s" for ms in LEVELS_MS), **HALVES} if way.waits else {}
    return {
        "node": {
            **own,
            "producerPort": 9613 + number * 1000,
            "consumerPort": 9713 + number * 1000,
            "brokerName": name,
            "data": "/data",
            "segmentBytes": 4 << 20 if way.big else 131_072,
            "ackFlush": way.ack_flush,
            "drainSeconds": 3,
            "maxMessageBytes": 2_000_000 if way.big else 32_768,
        },
        "kafka": {
            "main": {
                "bootstrapServers": "kafka:9092",
                "groupProtocol": way.protocol,
                "sessionTimeout": round(SESSION_SECONDS * 1000),
                "revokeTimeout": round(REVOKE_SECONDS * 1000),
                "takeover": way.takeover,
                "membership": way.membership,
                **waits,
            }
        },
        "topics": {topic: {"brokerCluster": "main"} for topic in (*TOPICS, *SHAKY, *WAITED)},
        "groups": [
            {"group": "by-key", "topics": [{"topic": "orders", "orderKey": "KEY", **keyed}]},
            {
                "group": "by-path",
                "topics": [
                    {"topic": topic, "orderKey": "$['case id']", "actions": ["Json", "Async", "PullServer"], **keyed}
                    for topic in TOPICS
                ],
            },
            {"group": SHAKEN, "topics": [{"topic": topic, "consumeFromWhere": "first", **keyed} for topic in SHAKY]},
            {"group": "free", "topics": [{"topic": "orders", "tags": ["red"], **keyed}, {"topic": "events", **keyed}]},
        ],
    }


@dataclass(slots=True)
class Report:
    """What a run did; two runs of a seed have equal ones."""

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)
    published: int = 0
    seconds: float = 0.0
    turns: int = 0


class Slot:
    """One node's place: its ports and its disk, and the process that is there now.

    Attributes:
        kafka: Its client of the cluster.
        perfect: Whether its clients have become so.
    """

    def __init__(self, name: str, config: Config) -> None:
        self.name = name
        self.config = config
        self.disk = SimDisk()
        self.process: Process | None = None
        self.node: Node | None = None
        self.kafka: SimClient | None = None
        self.task: asyncio.Task[None] | None = None
        self.troubles: dict[str, Trouble] = {}

    @property
    def still(self) -> bool:
        """Whether its process stands still."""
        return self.process is not None and self.process.still


class KafkaWorld:
    """The nodes, their network and disks, the cluster, and everybody's clients."""

    def __init__(self, way: Way, *, make_node: NodeFactory = Node) -> None:
        self.way = way
        self.loop = VirtualLoop()
        self.clock = VirtualClock(self.loop)
        self.network = SimNetwork(self.loop, Random(f"network {way.seed}"))
        self.kafka = SimKafka(
            Random(f"kafka {way.seed}"),
            clock=self.clock,
            scheduler=self.loop,
            session_seconds=SESSION_SECONDS,
            protocol=way.protocol,
        )
        self.kafka.beat_seconds = 0.5
        self.kafka.prompt_share = 0.6
        self.kafka.patience_seconds = 2.0
        self.history = History(self.network.mark)
        self.report = Report(way.seed)
        self.registry = Registry(outside=Outside(random=Random(f"outside {way.seed}"), http=SimHttp(self.network)))
        self.compacted: dict[Spot, int] = {}
        self.slots = {name: Slot(name, self._config(name)) for name in NODES}
        self.clients: list[Producer | Consumer] = []
        self.plain = Random(f"plain {way.seed}")
        self._open: dict[str, list[int]] = {}
        self._make_node = make_node
        self.errors: list[Exception] = []
        self._away: Trouble | None = None
        self._graveyard: list[Any] = []
        self._lives: Counter[str] = Counter()
        for topic, count in (TOPICS | SHAKY).items():
            self.kafka.partitions(topic, count)
        for group in (*GROUPS, SHAKEN):
            self.kafka.partitions(f"{group}.DLQ")
        self.kafka.partitions("__pyddmq_commits")
        if way.waits:
            for topic, count in {**WAITED, WAITING_TOPIC: WAITING_PARTITIONS, "__pyddmq_answers": 1}.items():
                self.kafka.partitions(topic, count)
        Opens.begin(way.seed, self.errors.append)
        self.kafka.on_append = self._appended
        self.kafka.on_owned = self._owned
        self.kafka.on_committed = self._committed
        self.kafka.on_refused = self._refused
        self.kafka.on_held = self._held
        self._behind: dict[Member, Trouble] = {}

    def _config(self, name: str) -> Config:
        text = yaml.safe_dump(settings(name, self.way), sort_keys=False)
        return loads(text, file=f"{name}.yaml", actions=self.registry).config

    # What the cluster tells.

    def _appended(self, record: KafkaRecord) -> None:
        if record.topic.endswith(".DLQ"):
            said = {name: (value or b"").decode() for name, value in record.headers if name.startswith("pyddmq.")}
            place = (said["pyddmq.topic"], int(said["pyddmq.partition"]), int(said["pyddmq.offset"]))
            self.history.note("dead", group=record.topic.removesuffix(".DLQ"), place=place)

    def _owned(self, group: str, place: KafkaPartition, member: Member | None) -> None:
        self.history.note("owned", _node_of(member), group, (*place, -1))

    def _committed(self, group: str, commit: Commit) -> None:
        self.history.note("committed", "", group, (commit.topic, commit.partition, commit.offset), commit.metadata)

    def _refused(self, group: str, member: Member, failure: KafkaFailure) -> None:
        self.report.events[f"refused_{failure.code}"] += 1
        self.history.note("refused", _node_of(member), group, detail=failure.code)

    def _held(self, group: str, member: Member, holds: bool) -> None:
        if holds:
            self.report.events["commits_behind_a_join"] += 1
            self._behind[member] = self.history.began("its commits waited behind its join", _node_of(member))
        elif (trouble := self._behind.pop(member, None)) is not None:
            self.history.ended(trouble, after=AGAIN_SECONDS)

    # The nodes' lives.

    def start(self, slot: Slot) -> None:
        """Start a node; it may take a while."""
        assert slot.process is None
        life = self._lives[slot.name]
        self._lives[slot.name] += 1
        process = slot.process = Process(f"{slot.name} {life}")
        drawn = f"{self.way.seed} {slot.name} {life}"
        delays = Random(f"threads {drawn}")

        def client(cluster: str, config: object) -> SimClient:
            slot.kafka = SimClient(self.kafka)
            return slot.kafka

        seams = Seams(
            loop=self.loop,
            clock=self.clock,
            disk=slot.disk,
            randomness=Random(f"node {drawn}"),
            network=self.network,
            syncs=SimSyncs(slot.disk, self.loop, Random(f"syncs {drawn}"), seconds_max=0.002),
            threads=VirtualThreads(self.loop, lambda: delays.random() * 0.02),
            kafka=client,
        )
        slot.node = process.run(lambda: self._make_node(slot.config, seams=seams, registry=self.registry))
        slot.task = process.run(self.loop.create_task, slot.node.start())
        self._ended(AWAY, slot)

    def kill(self, slot: Slot, *, empty: bool = False) -> None:
        """End a node at once; `empty`: its disk is lost, too."""
        assert slot.process is not None
        self._began(AWAY, slot)
        if slot.still:
            self._ended("it stood still", slot)
        self._bury(slot)
        if empty:
            slot.disk = SimDisk()
        else:
            slot.disk.kill()

    def stop(self, slot: Slot) -> None:
        """End a node in order; nothing that was answered may come again by that."""
        assert slot.process is not None
        assert slot.node is not None
        assert slot.task is not None
        if not slot.task.done():
            self.run(seconds=20, until=slot.task.done)
        task = slot.process.run(self.loop.create_task, slot.node.stop())
        self.run(seconds=60, until=task.done)
        task.result()
        self._bury(slot)

    def _bury(self, slot: Slot) -> None:
        assert slot.process is not None
        self._graveyard.append((slot.process, slot.node, slot.kafka, slot.task))
        slot.process.kill()
        if slot.kafka is not None:
            slot.kafka.kill()
            # What it had written to its sockets may still arrive.
            slot.kafka.link.heal()
            slot.kafka.link.reset()
            self.kafka.links.remove(slot.kafka.link)
        slot.process = slot.node = slot.kafka = slot.task = None

    def stand_still(self, slot: Slot) -> None:
        """Have a node's process stand still."""
        assert slot.process is not None
        self._began("it stood still", slot)
        slot.process.stand_still()

    def go_on(self, slot: Slot) -> None:
        """Have it go on."""
        assert slot.process is not None
        slot.process.go_on(self.loop)
        # It may find that it was expelled, or take itself for that, once it has taken what waited for it.
        self._ended("it stood still", slot, after=WAKE_SECONDS)

    def member_stands(self, slot: Slot, member: SimMember) -> None:
        """Have a member find its coordinator no more; answers may be lost until another has its place."""
        member.stands = True
        trouble = self.history.began("its member stood", slot.name)

        def look() -> None:
            if member.dead:
                self.history.ended(trouble, after=SESSION_SECONDS)
            else:
                self.loop.call_later(0.5, look)

        look()

    def cut(self, slot: Slot) -> None:
        """Let nothing through between a node and the cluster."""
        if slot.kafka is not None:
            self._began("it had lost the cluster", slot)
            slot.kafka.link.cut()

    def heal(self, slot: Slot, *, reset: bool) -> None:
        """Let it through again; `reset`: what was under way is lost."""
        if slot.kafka is not None:
            if reset:
                slot.kafka.link.reset()
            slot.kafka.link.heal()
        # A commit of which nothing was heard is given up, and made anew, within the session's time.
        self._ended("it had lost the cluster", slot, after=SESSION_SECONDS)

    def stop_kafka(self) -> None:
        """Kill the cluster."""
        self._away = self.history.began("the cluster was away")
        self.kafka.stop()

    def start_kafka(self) -> None:
        """Start it again."""
        self.kafka.start()
        if self._away is not None:
            self.history.ended(self._away, after=SESSION_SECONDS)

    def _began(self, what: str, slot: Slot) -> None:
        slot.troubles[what] = self.history.began(what, slot.name)

    def _ended(self, what: str, slot: Slot, *, after: float = 0.0) -> None:
        if (trouble := slot.troubles.pop(what, None)) is not None:
            self.history.ended(trouble, after=after)

    # Clients.

    def surroundings(self, name: str, number: int) -> Surroundings:
        """Return what a client of one node is given."""
        port = NODES.index(name) * 1000
        slot = self.slots[name]

        def has(group: str, topic: str, number: int) -> bool:
            broker = None if slot.node is None else slot.node.parts.kafka_groups.of(group)
            return broker is not None and any(each.place == (topic, number) for each in broker.partitions.owned)

        ledger: Any = Ledger(self.history, name, has)
        return Surroundings(
            loop=self.loop,
            edge=SimEdge(self.network),
            ledger=ledger,
            random=Random(f"client {self.way.seed} {number}"),
            counts=self.report.events,
            consumer_address=lambda: ("127.0.0.1", 9713 + port),
            producer_address=lambda: ("127.0.0.1", 9613 + port),
            failed=self.errors.append,
            wall_ms=self.clock.wall_ms,
        )

    def add_producer(self, name: str, habits: ProducerHabits) -> None:
        """Connect a producer to a node."""
        number = len(self.clients)
        producer = Producer(
            f"producer {number}",
            f"10.1.0.{number}",
            self.surroundings(name, number),
            habits,
            topics=tuple(TOPICS),
            compact=number % 2 == 0,
            number=number,
        )
        self.clients.append(producer)
        producer.connect()

    def add_consumer(self, name: str, group: str, habits: ConsumerHabits) -> None:
        """Connect a pull client to a node."""
        number = len(self.clients)
        consumer = Consumer(
            f"consumer {number}",
            f"10.2.0.{number}",
            self.surroundings(name, number),
            habits,
            group=group,
            topic=None,
            timeout=TIMEOUT_MS / 1000,
            compact=number % 3 == 0,
            names=number % 2 == 1,
        )
        self.clients.append(consumer)
        consumer.connect()

    # Records of other programs.

    def append_shaky(self) -> None:
        """Append a record to a topic whose logs do not last."""
        if "shaky" in self.kafka.topics:
            self.append_plainly(topics=SHAKY, outcome="unknown")

    def append_plainly(
        self, *, transaction: str | None = None, topics: Mapping[str, int] = TOPICS, outcome: str = "stored"
    ) -> None:
        """Append a record as another program does, which may take it back."""
        drawn, uid = self.plain, len(self.history.publishes) + 1
        topic = drawn.choice(list(topics))
        place = KafkaPartition(topic, drawn.randrange(topics[topic]))
        key, body = f"k{drawn.randrange(12)}", b'{"case id": "c%d", "uid": %d}' % (drawn.randrange(9), uid)
        now = self.network.mark()
        stamp = Stamp(now.sequence, now.turn, now.time, 0)
        self.history.publishes[uid] = Publish(
            uid, topic, key, "", body, None, True, 0, stamp, outcome="unknown" if transaction else outcome
        )
        headers = [("uid", str(uid).encode())]
        self.kafka.append(place, key.encode(), body, headers, transaction=transaction)
        if transaction is not None:
            self._open.setdefault(transaction, []).append(uid)

    def end_transaction(self, transaction: str, *, commit: bool) -> None:
        """Commit what a transaction has written, or take it back."""
        for uid in self._open.pop(transaction, []):
            self.history.publishes[uid].outcome = "stored" if commit else "refused"
        self.kafka.end(transaction, commit=commit)

    def compact(self) -> None:
        """Compact the topic without an order: of each key the last is left."""
        for partition in self.kafka.topics["events"]:
            for gone in partition.compact():
                self.compacted[gone.topic, gone.partition, gone.offset] = uid_of(gone)

    def widen(self, topic: str) -> None:
        """Give a topic one partition more."""
        self.kafka.partitions(topic, len(self.kafka.topics[topic]) + 1)

    # Time.

    def run(self, *, seconds: float, until: Any = None) -> bool:
        """Let virtual time pass; a broken promise or an unhandled exception ends the run here."""
        done = self.loop.run(until, seconds=seconds, turns_max=_TURNS_MAX)
        if self.errors:
            raise self.errors[0]
        if self.loop.errors:
            raise self.loop.errors[0].get("exception") or PromiseBroken(0, str(self.loop.errors[0]))
        return done

    # The end.

    def restore(self) -> None:
        """Take all faults away."""
        self.network.faults = NetworkFaults()
        if self.kafka.down:
            self.start_kafka()
        for transaction in list(self._open):
            self.end_transaction(transaction, commit=True)
        for slot in self.slots.values():
            if slot.still:
                self.go_on(slot)
            if slot.kafka is not None and slot.kafka.link.is_cut:
                self.heal(slot, reset=False)
            if slot.process is None:
                self.start(slot)
        for client in self.clients:
            if isinstance(client, Consumer):
                client.habits = PERFECT
            else:
                client.stopped = True
        if self.kafka.deleted:
            self.kafka.make_again("shaky")
        self.kafka.producers_denied = None
        self.kafka.limits.clear()

    def settle(self) -> None:
        """Take all faults away, let perfect clients finish everything, and wait until all of it is committed."""
        self.restore()
        for _ in range(6):
            self.append_shaky()
        for name in NODES:
            for group in (*GROUPS, SHAKEN):
                self.add_consumer(name, group, PERFECT)
        if not self.run(seconds=SETTLE_SECONDS, until=self._all_committed):
            raise PromiseBroken(6, f"after {SETTLE_SECONDS} s of perfect clients there is left: {self._left()}")
        self.run(seconds=SESSION_SECONDS)

    def _left(self) -> dict[str, tuple[int, int]]:
        """Return where each group stands, and the end, of partitions that it has not read and committed to the end."""
        found = {}
        for group in GROUPS:
            for topic in TOPICS:
                count = len(self.kafka.topics[topic])
                if group == "by-key" and topic != "orders":
                    continue
                for number in range(count):
                    place = KafkaPartition(topic, number)
                    at = self.kafka.group(group).committed.get(place, (0, ""))[0]
                    if at < self.kafka.partition(place).stable:
                        found[f"{group} {topic} {number}"] = (at, self.kafka.partition(place).stable)
        return found | self._shaky_left()

    def _shaky_left(self) -> dict[str, tuple[int, int]]:
        """Return likewise of logs that did not last: each record that is in them was handed out."""
        read = {event.detail for event in self.history.events if event.kind == "handed_out" and event.group == SHAKEN}
        return {
            f"{SHAKEN} {place.topic} {place.partition}": (offset, self.kafka.partition(place).high)
            for place in self.kafka.places()
            if place.topic in SHAKY
            for offset, record in self.kafka.partition(place).records.items()
            if uid_of(record) not in read
        }

    @property
    def busy(self) -> bool:
        """Whether a send is not answered."""
        return any(
            client.link is not None and client.link.pending for client in self.clients if isinstance(client, Producer)
        )

    def _all_committed(self) -> bool:
        return not self.busy and not self._left()

    def check(self) -> Report:
        """Hold the whole history against the promises."""
        stored: dict[int, list[Any]] = {}
        uids = dict(self.compacted)
        for topic in TOPICS:
            for partition in self.kafka.topics[topic]:
                for record in partition.records.values():
                    uid = uid_of(record)
                    stored.setdefault(uid, []).append(record)
                    uids[record.topic, record.partition, record.offset] = uid
        for uid in self.compacted.values():
            stored.setdefault(uid, []).append(uid)
        self.report.events["shaken"] = sum(event.group == SHAKEN for event in self.history.events)
        # A place of theirs may have been that of several records: what is asked of them is `_shaky_left`.
        self.history.events = [event for event in self.history.events if event.group != SHAKEN]
        check_publishes(self.history, stored)
        rules = Rules(
            ordered=ORDERED,
            sync=self.way.ack_flush == "sync",
            strict=self.way.takeover == "strict",
            timeout=TIMEOUT_MS / 1000,
        )
        account = Account(self.history, rules, uids)
        account.judge()
        for group in GROUPS:
            wanted = [spot for spot in uids if spot not in self.compacted and self._wants(group, spot, uids[spot])]
            if left := account.unfinished(group, wanted):
                raise PromiseBroken(6, f"{group} never finished {left}")
        self.report.events.update(account.counts)
        self.report.events.update(self.network.counts)
        self.report.published = len(stored)
        self.report.seconds = self.loop.time() - 1_000
        self.report.turns = self.loop.turns
        return self.report

    def _wants(self, group: str, spot: Spot, uid: int) -> bool:
        return group != "by-key" or spot[0] == "orders"


def uid_of(record: KafkaRecord) -> int:
    """Return the number of a message, which stands in its record."""
    return int(dict(record.headers)["uid"] or b"0")


def _node_of(member: Member | None) -> str:
    return member.client_id.removeprefix("pyddmq-") if isinstance(member, SimMember) else ""
