"""Nodes that share a waiting topic over a Kafka in memory, in virtual time: they are killed, cut off and go on."""

from __future__ import annotations

from random import Random
from typing import Any

from broker.runtime.bundle import runtime_of
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk, VirtualClock, VirtualLoop
from tests.fakes.kafka.client import SimClient, coordinator_of
from tests.fakes.kafka.cluster import SimKafka
from upstream.kafka.link import KafkaFailure, KafkaPartition, KafkaRecord
from upstream.kafka.waiting.cluster import KafkaWaiting
from upstream.kafka.waiting.records import HalfDecision, Identity, WaitingHalf, WaitingRecord
from upstream.kafka.waiting.topics import WaitingSettings

TOPIC, ANSWERS = "__pyddmq_waiting", "__pyddmq_answers"
SESSION_SECONDS = 6.0
START_MS = 1_700_000_000_000


class WaitingNode:
    """One node's part."""

    def __init__(self, world: WaitingWorld, name: str, **how: Any) -> None:
        self.name = name
        self.client = SimClient(world.kafka)
        self.world = world
        runtime = runtime_of(
            how.pop("disk", None) or SimDisk(),
            world.clock,
            scheduler=world.scheduler,
            random=Random(world.random.getrandbits(32)),
        )
        self.metrics = runtime.metrics
        settings: dict[str, Any] = {
            "cluster": "main",
            "servers": "kafka:9092",
            "node": name,
            "topic": TOPIC,
            "answers_topic": ANSWERS,
            "partitions": world.partitions,
            "ahead_ms": 400 * 86_400_000,
            "remember_ms": 7 * 86_400_000,
            **how,
        }
        self.producer = self.client.producer()
        self.waiting = KafkaWaiting(
            WaitingSettings(**settings), self.client, self.producer, runtime, lambda: b"%032X" % world.new_id()
        )
        self.waiting.start()

    def add(self, name: str, due_ms: int, *, topic: str = "orders", body: bytes | None = None, **more: Any) -> None:
        """Have a message wait; in `world.added` once it is acknowledged."""
        identity = Identity(topic, more.pop("principal", ""), name)
        message = WaitingRecord(due_ms, more.pop("partition", None), b"k", body or name.encode(), (), **more)
        outgoing = self.waiting.record(identity, message)

        def done(failure: KafkaFailure | None, _: int, __: int) -> None:
            if failure is None:
                self.world.added[name] = due_ms

        self.producer.produce(outgoing.topic, outgoing.partition, outgoing.key, outgoing.value, (), done)

    def ask(self, name: str, due_ms: int = 0, *, topic: str = "orders", seconds: float = 5.0) -> list[str]:
        """Cancel or move; the list gets the outcome."""
        outcome: list[str] = []
        self.waiting.requests.ask(Identity(topic, "", name), due_ms, seconds, outcome.append)
        return outcome

    def half(self, name: str, *, group: str = "shop", principal: str = "", **more: Any) -> None:
        """Have a half wait for its decision."""
        first_ms = self.world.now_ms + self.waiting.checks.timeout_ms
        self.add(name, first_ms, principal=principal, half=WaitingHalf(group, **more))

    def decide(self, name: str, state: str, *, group: str = "shop", seconds: float = 5.0, **more: Any) -> list[str]:
        """Decide a half; the list gets the outcome."""
        outcome: list[str] = []
        wanted = HalfDecision("", state, group, **more)
        self.waiting.requests.decide(Identity("orders", "", name), wanted, seconds, outcome.append)
        return outcome

    def checks(self, group: str = "shop", principal: str = "") -> list[tuple[str, int]]:
        """Fetch due checks: name and number of each."""
        return [(each.identity.id, each.times) for each in self.waiting.fetch_checks(group, 100, principal)]

    def kill(self) -> None:
        """End without a word."""
        self.client.kill()
        self.waiting._tick.end()
        for each in self.waiting.owners.values():
            each.close()
        self.waiting.owners.clear()
        self.world.nodes.remove(self)

    def leave(self) -> None:
        """End in order."""
        self.waiting.leave(lambda: None)
        self.world.nodes.remove(self)

    @property
    def served(self) -> list[int]:
        """Partitions that it serves."""
        return sorted(place.partition for place, each in self.waiting.owners.items() if each.state == "serving")


class WaitingWorld:
    """A cluster and its nodes.

    Args:
        loop: Moves the time, in place of a scheduler that is turned by hand.

    Attributes:
        added: Acknowledged messages, with their due times.
        delivered: When each message's committed deliveries became visible, by name.
    """

    def __init__(
        self,
        seed: int = 1,
        *,
        partitions: int = 3,
        nodes: int = 1,
        gaps: float = 0.2,
        loop: VirtualLoop | None = None,
    ) -> None:
        self.random = Random(seed)
        self.clock: ManualClock | VirtualClock
        self.scheduler: ManualScheduler | VirtualLoop
        if loop is None:
            self.clock = ManualClock(wall_ms=START_MS)
            self.scheduler = ManualScheduler(self.clock)
        else:
            self.clock, self.scheduler = VirtualClock(loop, START_MS), loop
        self.kafka = SimKafka(
            self.random, clock=self.clock, scheduler=self.scheduler, session_seconds=SESSION_SECONDS, gaps=gaps,
            protocol="classic",
        )  # fmt: skip
        self.partitions = partitions
        self.kafka.partitions(TOPIC, partitions)
        self.kafka.partitions(ANSWERS, 1)
        self.kafka.partitions("orders", 2)
        self.kafka.partitions("events", 1)
        self.coordinator = coordinator_of(self.kafka)
        self.added: dict[str, int] = {}
        self._ids = 0
        self.seen: dict[str, dict[str, list[int]]] = {}
        self._read: dict[KafkaPartition, int] = {}
        self._ends: dict[KafkaPartition, int] = {}
        self.nodes: list[WaitingNode] = []
        for number in range(nodes):
            self.start(f"n{number}")

    @property
    def now_ms(self) -> int:
        """Wall clock."""
        return self.clock.wall_ms()

    def new_id(self) -> int:
        """A message id."""
        self._ids += 1
        return self._ids

    def start(self, name: str, **how: Any) -> WaitingNode:
        """Start a node."""
        node = WaitingNode(self, name, **how)
        self.nodes.append(node)
        return node

    def run(self, seconds: float, step: float = 0.01) -> None:
        """Let time pass, and note what becomes visible to consumers."""
        end = self.clock.monotonic() + seconds
        while self.clock.monotonic() < end - 1e-9:
            seconds = min(step, end - self.clock.monotonic())
            if isinstance(self.scheduler, VirtualLoop):
                self.scheduler.run(seconds=seconds)
            else:
                self.scheduler.advance(seconds)
            self._look()

    def settle(self) -> None:
        """Until each partition is served."""
        for _ in range(600):
            if sorted(number for node in self.nodes for number in node.served) == list(range(self.partitions)):
                return
            self.run(0.1)
        raise AssertionError("the partitions are not served")

    def _look(self) -> None:
        for place in list(self.kafka.places()):
            if place.topic in (TOPIC, ANSWERS):
                continue
            partition = self.kafka.partition(place)
            if self._ends.get(place) == partition.stable:
                continue
            self._ends[place] = partition.stable
            for record in partition.read(self._read.get(place, 0), 10_000):
                self._read[place] = record.offset + 1
                name = (record.value or b"").decode()
                self.seen.setdefault(place.topic, {}).setdefault(name, []).append(self.now_ms)

    def delivered(self, topic: str = "orders") -> dict[str, list[int]]:
        """Moments of each delivery that consumers see, by body."""
        self._look()
        return self.seen.get(topic, {})

    def log(self) -> list[KafkaRecord]:
        """All records of the waiting topic."""
        return [
            each
            for number in range(self.partitions)
            for each in self.kafka.partition(KafkaPartition(TOPIC, number)).read(0, 100_000)
        ]
