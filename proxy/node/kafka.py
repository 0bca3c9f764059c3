"""Kafka in a node: the ways to its clusters, and the members of its groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

import structlog

from broker.runtime.bundle import Runtime
from broker.transaction.settings import CheckSettings
from conf import Config, GroupConfig
from conf.secrets import SecretUnreadable
from conf.sections.kafka import KafkaClusterConfig
from proxy.node.kafka_letters import KafkaLetters
from proxy.node.kafka_members import KafkaMembers
from proxy.services.kafka.numbers import KafkaNumbers
from proxy.services.kafka.sends import KafkaSends
from proxy.services.publishing import Publishing
from upstream.budget import Budget
from upstream.calls.seams import Threads
from upstream.delivery.group import ConsumerGroup
from upstream.figures.tracing import Tracing
from upstream.kafka.broker import KafkaBroker, Ways
from upstream.kafka.group_protocol import AUTO, stays_classic
from upstream.kafka.lasting_producer import LastingProducer
from upstream.kafka.link import GroupMember, KafkaClient, KafkaFailure, KafkaProducer, ScanFound, TopicScan
from upstream.kafka.member_settings import longest_seconds
from upstream.kafka.membership import LEAVE_SECONDS
from upstream.kafka.partitions import MemberSettings
from upstream.kafka.subscriptions import is_expression
from upstream.kafka.waiting.cluster import KafkaWaiting
from upstream.kafka.waiting.seat import SESSION_SECONDS
from upstream.kafka.waiting.topics import settings_of
from upstream.kafka_client.package import KafkaUnusable

_log = structlog.get_logger(__name__)

WAITING_SESSION_MS = round(SESSION_SECONDS * 1000)
"""Brokers' default lower bound (group.min.session.timeout.ms)."""
SECONDS = 5.0
"""What a stop waits at most until its groups have left Kafka, once what is finished is committed, and for what is
sent there."""

MakeKafkaClient = Callable[[str, KafkaClusterConfig], KafkaClient]
"""Makes the client of a cluster, by its name under `kafka`."""


@contextmanager
def _reported() -> Iterator[None]:
    """Say in one kind of failure why there can be no client."""
    try:
        yield
    except (KafkaUnusable, SecretUnreadable) as error:
        raise KafkaFailure("NO_CLIENT", str(error)) from error


class KafkaClients:
    """The ways to the clusters of one node, each made when it is first needed.

    Attributes:
        sends: What the producer port has under way; None where there is no cluster, or the port has not begun.
        waiting: Delays, timers and loops, by clusters that have them.
        members: Who has the partitions of groups.
    """

    def __init__(
        self,
        clusters: Mapping[str, KafkaClusterConfig],
        make: MakeKafkaClient,
        runtime: Runtime,
        tracing: Tracing | None = None,
    ) -> None:
        """Set up.

        Args:
            clusters: As configured.
            make: Makes a client; raises where it cannot be had (a package, a secret).
            runtime: The node's.
            tracing: Makes spans of what is sent; None: nothing is traced.
        """
        self._runtime = runtime
        self._tracing = tracing
        self._clusters = clusters
        self._make = make
        self._clients: dict[str, KafkaClient] = {}
        self._producers: dict[str, LastingProducer] = {}
        self._asked: tuple[Config | None, dict[str, str]] = (None, {})
        """A topic of each cluster, by the configuration in force."""
        self.sends: KafkaSends | None = None
        self.waiting: dict[str, KafkaWaiting] = {}
        self._scanning = asyncio.Lock()
        self._letters: dict[tuple[str, str], KafkaLetters] = {}
        self.members = KafkaMembers(self.client, runtime.clock)

    async def scan(self, cluster: str, scan: TopicScan) -> ScanFound:
        """Look through a topic, one scan of the node at a time; it ends when its caller is cancelled.

        Raises:
            KafkaFailure: The cluster does not respond, or refuses.
        """
        async with self._scanning:
            answer: asyncio.Future[tuple[KafkaFailure | None, ScanFound]] = asyncio.get_running_loop().create_future()

            def done(failure: KafkaFailure | None, found: ScanFound) -> None:
                if not answer.done():
                    answer.set_result((failure, found))

            stop = self.client(cluster).scan(scan, done)
            try:
                failure, found = await answer
            finally:
                stop()
            if failure is not None:
                raise failure
            return found

    def letters(self, cluster: str, group: str) -> KafkaLetters:
        """Return the dead letters of a group, which know its redrives."""
        if (cluster, group) not in self._letters:
            self._letters[cluster, group] = KafkaLetters(
                group, partial(self.scan, cluster), lambda name: self.client(cluster).transactions(name)
            )
        return self._letters[cluster, group]

    def start_waiting(self, config: Config, new_id: Callable[[], bytes], folder: str) -> None:
        """Take part in delivering what waits on each cluster that is configured so.

        Args:
            config: The node's.
            new_id: Makes a message id.
            folder: Of the caches; "": they are in memory.
        """
        for name, cluster in config.kafka.items():
            settings = settings_of(config, name, folder)
            if settings is None:
                continue
            # A dead owner is to be followed within seconds, whatever the session of groups.
            quick = cluster.model_copy(
                update={"session_timeout": WAITING_SESSION_MS, "group_protocol": "classic", "membership": "always"}
            )
            try:
                with _reported():
                    client = self._make(name, quick)
                made = KafkaWaiting(settings, client, self.producer_of(name), self._runtime, new_id)
            except KafkaFailure as failure:
                _log.error("kafka_waiting_unusable", cluster=name, error=str(failure))
                continue
            self.waiting[name] = made
            made.start()

    def configure_checks(self, settings: CheckSettings) -> None:
        """Bring into force when half messages on Kafka are checked and discarded."""
        for each in self.waiting.values():
            each.checks = settings

    def undecided_of(self, principal: str) -> int:
        """Return how many halves of a principal are undecided, in all clusters."""
        return sum(each.undecided_of(principal) for each in self.waiting.values())

    def waiting_troubles(self) -> dict[str, list[str]]:
        """Return what is wrong with messages that wait, by cluster."""
        found = {name: each.troubles() for name, each in self.waiting.items()}
        return {name: texts for name, texts in found.items() if texts}

    @property
    def unsettled(self) -> bool:
        """Whether a send waits for a cluster."""
        return self.sends is not None and self.sends.waiting > 0

    def client(self, cluster: str) -> KafkaClient:
        """Return a cluster's client.

        Raises:
            KafkaFailure: It cannot be had: the extra is not installed, a secret or a setting is wrong.
            KeyError: The cluster is not configured.
        """
        if cluster not in self._clients:
            with _reported():
                self._clients[cluster] = self._make(cluster, self._clusters[cluster])
        return self._clients[cluster]

    def producer_of(self, cluster: str) -> KafkaProducer:
        """Return a cluster's producer; likewise."""
        if cluster not in self._producers:
            with _reported():
                self._producers[cluster] = LastingProducer(
                    cluster, self.client(cluster).producer, self._runtime, self._tracing
                )
        return self._producers[cluster]

    def partitions(self, cluster: str, topic: str) -> int | None:
        """Return how many partitions a topic has; None: that is not known, or nothing was sent to its cluster yet."""
        producer = self._producers.get(cluster)
        return None if producer is None or is_expression(topic) else producer.partitions(topic)

    def producer_troubles(self) -> dict[str, str]:
        """Return the clusters whose producer has ended by a fault, each with what it said."""
        return {name: str(each.trouble) for name, each in self._producers.items() if each.trouble is not None}

    def unreachable(self, config: Config) -> dict[str, str]:
        """Return the clusters that do not respond, each with the reason; asks them where the last answer is old."""
        if self._asked[0] is not config:
            self._asked = config, {}
            for topic in config.topics if self._clusters else ():
                if (cluster := config.cluster_of(topic)) is not None and not is_expression(topic):
                    self._asked[1].setdefault(cluster, topic)
        found = {}
        for name, producer in self._producers.items():
            asked = self._asked[1].get(name)
            if asked is not None and (failure := producer.unreachable(asked)) is not None:
                found[name] = str(failure)
        return found

    def close(self, seconds: float) -> None:
        """Wait at most so long for what is under way to each cluster, and end; blocks."""
        for producer in self._producers.values():
            producer.close(seconds)
        self._producers.clear()

    async def close_beside(self, seconds: float, *, threads: Threads, loop: asyncio.AbstractEventLoop) -> None:
        """Close beside the loop, which meanwhile gets the results of records that are under way."""
        if not self._producers:
            return
        ended: asyncio.Future[object] = loop.create_future()

        def work() -> object:
            try:
                self.close(seconds)
            except Exception as error:
                return error
            return None

        threads.run(work, lambda raised: None if ended.done() else ended.set_result(raised))
        raised = await ended
        if raised is not None:
            _log.error("kafka_producers_not_closed", text=str(raised))


class KafkaGroups:
    """The groups of one node that read from Kafka, by their names.

    Args:
        clients: The ways to the clusters.
        runtime: The node's.
        budget: The node's account of memory.
    """

    def __init__(self, clients: KafkaClients, runtime: Runtime, budget: Budget) -> None:
        self._clients = clients
        self._runtime = runtime
        self._budget = budget
        self._brokers: dict[str, KafkaBroker] = {}
        self._always: dict[str, bool] = {}
        self._clusters: dict[str, str] = {}
        self._sessions: dict[str, int | None] = {}
        """Session times of brokers by cluster, in ms; None while they are not known."""
        self._autos: dict[str, KafkaClient] = {}

    def broker(self, config: Config, group: GroupConfig) -> KafkaBroker | None:
        """Make a group's share of its cluster; None for one that reads the node's own store.

        Raises what `KafkaClients.client` does.
        """
        with _reported():
            return self._broker(config, group)

    def _broker(self, config: Config, group: GroupConfig) -> KafkaBroker | None:
        cluster = cluster_of(config, group)
        if cluster is None:
            return None
        settings = config.kafka[cluster]
        client = self._clients.client(cluster)
        strict = settings.takeover == "strict"
        self._clusters[group.group] = cluster
        if settings.group_protocol == "consumer" and cluster not in self._sessions:
            self._sessions[cluster] = None
            client.session_ms(lambda theirs: self._heard_session(cluster, settings.session_timeout, theirs))
        self._always[group.group] = settings.membership == "always"
        if settings.group_protocol == AUTO:
            self._autos[group.group] = client

        def member() -> GroupMember:
            return client.member(group.group, f"pyddmq-{config.node.broker_name}")

        broker = KafkaBroker(
            group,
            ways=Ways(
                member=member(),
                again=member,
                reader=client.reader(),
                producer=self._clients.producer_of(cluster),
            ),
            runtime=self._runtime,
            settings=MemberSettings(
                session_seconds=min(settings.session_timeout, self._sessions.get(cluster) or settings.session_timeout)
                / 1000,
                commit_seconds=settings.commit_interval / 1000,
                revoke_seconds=settings.revoke_timeout / 1000,
                takeover_seconds=longest_seconds(group) if strict else 0.0,
                waiting_bytes=settings.waiting_bytes,
                commit_topic=settings.commit_topic,
                whole_names=settings.group_protocol == "consumer",
            ),
        )
        broker.budget = self._budget
        self._brokers[group.group] = broker
        return broker

    def _heard_session(self, cluster: str, ours: int, theirs: int | None) -> None:
        """Count with the brokers' session time where it is the shorter one: they give partitions away by it."""
        if theirs is None or theirs == ours:
            return
        self._sessions[cluster] = theirs
        _log.warning("kafka_session_differs", cluster=cluster, configured_ms=ours, brokers_ms=theirs)
        for name, broker in self._brokers.items():
            if self._clusters[name] == cluster:
                broker.partitions.lease.shorten(theirs / 1000)

    def of(self, group: str) -> KafkaBroker | None:
        """Return the share of a running group; None for one that reads the node's own store."""
        return self._brokers.get(group)

    def troubles(self) -> dict[str, str]:
        """Return the groups whose cluster is in trouble, each with what it said."""
        found = {name: broker.partitions.trouble for name, broker in self._brokers.items()}
        return {name: str(failure) for name, failure in found.items() if failure is not None}

    def unreachable(self, config: Config) -> dict[str, str]:
        """Return the clusters that do not respond, each with the reason, unless the troubles of a group say so."""
        said = {self._clusters[group] for group in self.troubles()}
        return {name: text for name, text in self._clients.unreachable(config).items() if name not in said}

    def topic_troubles(self) -> dict[str, list[str]]:
        """Return what is wrong with single topics, each sentence with the groups that read them."""
        found: dict[str, list[str]] = {}
        for name, broker in sorted(self._brokers.items()):
            for text in broker.partitions.topic_troubles.texts().values():
                found.setdefault(text, []).append(name)
        return found

    def classic(self) -> dict[str, list[str]]:
        """Return why groups of `groupProtocol: auto` are classic, each reason with the groups."""
        found: dict[str, list[str]] = {}
        for name, client in sorted(self._autos.items()):
            broker = self._brokers.get(name)
            if broker is None:
                continue
            why = client.protocol_trouble
            if stays_classic(broker.partitions.subscriptions.names):
                why = "it reads a regular expression, which brokers read in another way with KIP-848"
            if why:
                found.setdefault(why, []).append(name)
        return found

    def starting(self, group: ConsumerGroup) -> Generator[None, None, None]:
        """Start a group, as a member of its cluster where it reads from Kafka; in steps."""
        yield from group.starting()
        broker = self._brokers.get(group.name)
        if broker is not None:
            broker.join(
                group.group_queues,
                group.go_on,
                lambda: self._changed(group, broker),
                lambda: self._always[group.name] or group.is_at_work(LEAVE_SECONDS),
            )

    def expanded(self, settings: GroupConfig) -> GroupConfig:
        """Return settings of a group with entries for the topics that are there; those of the store's as they are."""
        broker = self._brokers.get(settings.group)
        return settings if broker is None else broker.expanded(settings)

    def configured(self, settings: GroupConfig) -> None:
        """Read the topics that a group lists now."""
        broker = self._brokers.get(settings.group)
        if broker is not None:
            broker.configure(settings)

    def _changed(self, group: ConsumerGroup, broker: KafkaBroker) -> bool:
        """Have a group read topics that came or went, and at its part of its rates."""
        try:
            group.reconfigure(broker.expanded())
        except Exception as error:
            # An action of another instance that cannot be made; those topics are tried again with the next look.
            self._runtime.limited_log.note("kafka_topics_not_read", group.name, error=repr(error))
            return False
        return True

    def left(self, name: str) -> None:
        """Leave for a group that was taken out and has drained."""
        broker = self._brokers.pop(name, None)
        if broker is not None:
            broker.leave(lambda: None)

    async def end(self, *, threads: Threads, loop: asyncio.AbstractEventLoop) -> None:
        """Leave for all groups, with a last commit each, and close the ways to the clusters, within SECONDS each.

        To the first comes what a last commit may have to wait for (`upstream.kafka.commits.commits`).
        """
        seconds = SECONDS + max((each.leave_seconds for each in self._brokers.values()), default=0.0)
        if still := await self._leave(seconds, self._clients.waiting):
            _log.warning("kafka_groups_not_left", groups=still, seconds=seconds)
        await self._clients.close_beside(SECONDS, threads=threads, loop=loop)

    async def _leave(self, seconds: float, parts: Mapping[str, KafkaWaiting]) -> list[str]:
        """Return the groups that have not left after so long; `parts` are those in what waits."""
        waiting: dict[str, asyncio.Event] = {}
        for name, broker in self._brokers.items():
            waiting[name] = asyncio.Event()
            broker.leave(waiting[name].set)
        self._brokers.clear()
        for name, part in parts.items():
            left = waiting[f"{part.settings.topic} of {name}"] = asyncio.Event()
            part.leave(left.set)
        if waiting:
            await asyncio.wait([asyncio.ensure_future(each.wait()) for each in waiting.values()], timeout=seconds)
        return [name for name, each in waiting.items() if not each.is_set()]


def cluster_of(config: Config, group: GroupConfig) -> str | None:
    """Return the cluster from which a group reads; as `Config.cluster_of_group`, also for one that is not listed."""
    topics = group.enabled_topics or group.topics
    return next((cluster for each in topics if (cluster := config.cluster_of(each.topic)) is not None), None)


def qid_prefix_of(config: Config, group: GroupConfig) -> str:
    """Return the text in front of the queue number in the qids of a group (W35: made in one place)."""
    cluster = cluster_of(config, group)
    node = config.node
    return f"{node.broker_cluster}_{node.broker_name}_" if cluster is None else f"{cluster}_"


def kafka_sends(
    config: Config,
    publishing: Publishing,
    numbers: KafkaNumbers,
    runtime: Runtime,
    new_keys: Callable[[int, int], list[bytes]],
) -> KafkaSends | None:
    """Make what sends to the clusters of a configuration; None: there is none. Arguments as of `KafkaSends`."""
    if not config.kafka:
        return None
    return KafkaSends(publishing, numbers, runtime=runtime, new_keys=new_keys, clusters=len(config.kafka))
