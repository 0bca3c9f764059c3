"""`pyddmq store handover --to kafka`: what waits in a stopped store is copied into the waiting topics of its clusters.

The configuration says which topics are in which cluster. What the topics, or Kafka, cannot take is counted first, so
that nothing is copied before an operator has seen it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from broker.runtime.bundle import Runtime
from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from broker.scheduled.delay.levels import DelayLevels
from conf import Config
from proxy.cli.errors import CliError
from proxy.cli.store.handover import NAMES_SHOWN, Point
from proxy.cli.store.stored_waiting import NotCopied, StoredWaiting, WaitingInStore
from proxy.process.exit_codes import ExitCode
from upstream.kafka.cluster_facts import ClusterFacts, TopicFacts
from upstream.kafka.link import KafkaClient
from upstream.kafka.waiting.handover import CopiedMessage, HandoverProgress, HandoverStopped, WaitingCopy, mark_of
from upstream.kafka.waiting.topics import WaitingSettings, problem_of, settings_of

if TYPE_CHECKING:
    from proxy.cli.store.stopped_store import StoppedStore
    from upstream.kafka_client.client import LibrdkafkaClient

_RECORD_BYTES = 512
"""What a record in Kafka has besides its key, value and headers, at most."""
_KAFKA_BYTES_MAX = 1_048_588
"""Kafka's own limit of a record, where a topic does not say."""
_DAY_MS = 86_400_000


class _Kind(NamedTuple):
    """What a point says of the messages of one kind."""

    text: str
    advice: str = ""
    needs_accept: bool = False


_KINDS = {
    "to_copy": _Kind("messages that wait would be copied to Kafka"),
    "copied": _Kind("messages that wait were copied to Kafka"),
    "already_there": _Kind("messages are in the waiting topic, or were copied and delivered before"),
    "not_in_kafka": _Kind("messages wait for topics that the configuration does not have in Kafka: they stay"),
    "discarded": _Kind(
        "discarded transactions stay in the store", "resume them first: `pyddmq transactions resume` on a running node"
    ),
    "internal": _Kind(
        "messages wait for internal topics of the broker, such as retries, and stay",
        "run the node until its groups have finished them",
        needs_accept=True,
    ),
    "unreadable": _Kind(
        "messages cannot be read and stay", "`pyddmq store check` shows which records are damaged", needs_accept=True
    ),
    "topic_missing": _Kind(
        "messages wait for topics that the Kafka cluster does not have, or hides: they stay",
        "create the topics in Kafka, or grant Describe on them",
        needs_accept=True,
    ),
    "too_far": _Kind(
        "messages are due later than waiting.maxDelaySec allows (at most 400 days), and stay",
        "raise waiting.maxDelaySec of the cluster, or run the handover again when they are nearer",
        needs_accept=True,
    ),
    "too_large": _Kind(
        "messages are larger than max.message.bytes of the waiting topic, or of their own, and stay",
        "raise max.message.bytes of these topics; the waiting topic needs 64 KiB more than the largest",
        needs_accept=True,
    ),
    "uncertain": _Kind(
        "messages were being copied when a handover stopped longer than waiting.rememberSec ago; whether they were "
        "delivered since is unknown: they stay",
        "look for them in their topics; send again those that are missing",
        needs_accept=True,
    ),
}


class _Counts:
    """Messages by kind of point, then by topic."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[str]] = defaultdict(Counter)

    def add(self, kind: str, name: str, count: int = 1) -> None:
        """Count some."""
        self._counts[kind][name] += count

    def points(self) -> Iterator[Point]:
        """Yield a point for each kind that there is."""
        for kind, (text, advice, needs_accept) in _KINDS.items():
            found = sorted(self._counts[kind].items())
            if total := sum(count for _, count in found):
                names = [f"{name}: {count}" for name, count in found[:NAMES_SHOWN]]
                yield Point(kind, total, names, text, advice, needs_accept)


class HandoverClients:
    """Clients of the clusters of a configuration, for the loop that runs."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._made: list[LibrdkafkaClient] = []

    def client(self, cluster: str) -> KafkaClient:
        """Make one. Raises CliError: the package or a secret is missing."""
        from conf.secrets import SecretUnreadable
        from upstream.kafka_client.client import LibrdkafkaClient
        from upstream.kafka_client.package import KafkaUnusable

        try:
            made = LibrdkafkaClient(
                cluster,
                self._config.kafka[cluster],
                client_id="pyddmq-handover",
                loop=asyncio.get_running_loop(),
                clock=SystemClock(),
            )
        except (KafkaUnusable, SecretUnreadable) as error:
            raise CliError(f"kafka.{cluster}: {error}", ExitCode.CONFIG_INVALID) from error
        self._made.append(made)
        return made

    def close(self) -> None:
        """Ask nothing more."""
        for each in self._made:
            each.close()


class KafkaTarget:
    """One cluster.

    Args:
        settings: Of its waiting topic.
        client: Reaches it.
        root: Of the store.
        runtime: Wall clock and randomness.
    """

    def __init__(self, settings: WaitingSettings, client: KafkaClient, root: str, runtime: Runtime) -> None:
        self.settings = settings
        self.progress = HandoverProgress(RealDisk(), f"{root}/pyddmq/handover-{settings.cluster}.jsonl")
        self.copy = WaitingCopy(settings, client, runtime)
        self._client = client
        self._clock = runtime.clock
        self._facts = ClusterFacts()
        self._present: set[bytes] = set()

    async def prepare(self, topics: set[str], wanted: set[bytes], *, dry_run: bool) -> None:
        """Look at the topics and at what was copied before.

        Raises:
            CliError: The waiting topic is not as it has to be.
            StoreError: What was copied before went into another topic.
            HandoverStopped: The cluster does not respond.
        """
        settings = self.settings
        facts = await self.copy.look(sorted({*topics, settings.topic, settings.answers_topic}))
        problem = problem_of(
            settings, facts.topics.get(settings.topic), settings.answers_topic in facts.topics, facts.hidden
        )
        if problem:
            raise CliError(problem, ExitCode.REFUSED)
        self._facts = facts
        self.progress.check(self._log)
        if not dry_run:
            await self.copy.fence()
        self._present = await self.copy.present(wanted, self._waiting.partitions)

    @property
    def _waiting(self) -> TopicFacts:
        return self._facts.topics[self.settings.topic]

    @property
    def _log(self) -> str:
        return f"{self._facts.id}/{self._waiting.id}"

    def begin(self) -> None:
        """Have the progress written. Raises OSError."""
        self.progress.begin(self._log)
        self.progress.note_copied(sorted(self._present - self.progress.copied))

    def kind_of(self, message: StoredWaiting) -> str:
        """Return as what a message counts; "": it is to be copied."""
        identity, record = message.identity, message.record
        mark, now_ms = mark_of(identity), self._clock.wall_ms()
        if mark in self._present or mark in self.progress.copied:
            return "already_there"
        begun_ms = self.progress.begun.get(mark)
        if begun_ms is not None and begun_ms + self.settings.remember_ms < now_ms + _DAY_MS:
            return "uncertain"
        topic = self._facts.topics.get(identity.topic)
        if topic is None:
            return "topic_missing"
        half = record.half
        due_ms = record.due_ms if half is None else max(now_ms + half.delay_ms, half.deliver_at_ms)
        if due_ms - now_ms > self.settings.ahead_ms:
            return "too_far"
        size = len(record.body) + sum(len(name) + len(value or b"") for name, value in record.headers) + _RECORD_BYTES
        # In the waiting topic keys and headers are in base64.
        waiting = size + len(record.key or b"") + sum(len(value or b"") for _, value in record.headers)
        if size > _limit(topic) or waiting > _limit(self._waiting):
            return "too_large"
        return ""

    def placed(self, message: StoredWaiting) -> CopiedMessage:
        """Return what is written of a message."""
        return CopiedMessage(message.identity, message.placed(self._facts.topics[message.identity.topic].partitions))


def _limit(topic: TopicFacts) -> int:
    return int(topic.settings.get("max.message.bytes", _KAFKA_BYTES_MAX))


class KafkaHandover:
    """One run of the command.

    Args:
        found: The store.
        config: Of the node after the handover.
        client_of: Makes the client of a cluster.
        report: Called with the messages copied so far.

    Raises:
        CliError: A topic is in a cluster without a waiting topic.
    """

    def __init__(
        self,
        found: StoppedStore,
        config: Config,
        client_of: Callable[[str], KafkaClient],
        report: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._found = found
        self._config = config
        self._client_of = client_of
        self._report = report
        self._store = WaitingInStore(found, DelayLevels(config.node.message_delay_level))
        self._marks: defaultdict[str, set[bytes]] = defaultdict(set)
        self._topics: defaultdict[str, set[str]] = defaultdict(set)
        for each in self._store.messages():
            if isinstance(each, StoredWaiting) and (cluster := config.cluster_of(each.identity.topic)) is not None:
                self._marks[cluster].add(mark_of(each.identity))
                self._topics[cluster].add(each.identity.topic)
        self._settings = {cluster: self._settings_of(cluster) for cluster in self._topics}

    def _settings_of(self, cluster: str) -> WaitingSettings:
        settings = settings_of(self._config, cluster)
        if settings is None:
            topics = ", ".join(sorted(self._topics[cluster])[:NAMES_SHOWN])
            text = (
                f"messages wait for topics of Kafka cluster {cluster} ({topics}), which has no `waiting` in the "
                f"configuration; add `waiting: {{}}` to kafka.{cluster} and create its topics (docs/kafka.md)"
            )
            raise CliError(text, ExitCode.REFUSED)
        return settings

    async def run(self, *, dry_run: bool, accept: bool) -> list[Point]:
        """Copy, or count what would be copied: with `dry_run`, and where something that stays is not accepted.

        Raises:
            CliError: Kafka does not respond, or its waiting topic is not as it has to be.
            StoreError, OSError: The progress cannot be written.
        """
        targets: dict[str, KafkaTarget] = {}
        try:
            for cluster, settings in self._settings.items():
                target = KafkaTarget(settings, self._client_of(cluster), self._found.root, self._found.runtime)
                targets[cluster] = target
                await target.prepare(self._topics[cluster], self._marks[cluster], dry_run=dry_run)
            points = list(self._count(targets, "to_copy").points())
            if dry_run or (any(each.needs_accept for each in points) and not accept):
                return points
            counts = self._count(targets, "copied")
            for cluster, target in targets.items():
                with closing(target.progress):
                    target.begin()
                    await target.copy.copy(self._to_copy(cluster, target), target.progress, self._report)
            return list(counts.points())
        except HandoverStopped as stopped:
            raise CliError(str(stopped), ExitCode.CANNOT_CONNECT) from stopped
        finally:
            for target in targets.values():
                target.copy.close()

    def _count(self, targets: Mapping[str, KafkaTarget], copied: str) -> _Counts:
        """Count all messages by what becomes of them."""
        counts, seen = _Counts(), set[bytes]()
        counts.add("discarded", "transactions", self._store.discarded)
        for each in self._store.messages():
            if isinstance(each, NotCopied):
                counts.add(each.kind, each.topic or "unknown topic")
                continue
            name = f"{each.identity.topic} ({each.record.kind})"
            cluster = self._config.cluster_of(each.identity.topic)
            if cluster is None:
                counts.add("not_in_kafka", name)
                continue
            mark = mark_of(each.identity)
            counts.add("already_there" if mark in seen else targets[cluster].kind_of(each) or copied, name)
            seen.add(mark)
        return counts

    def _to_copy(self, cluster: str, target: KafkaTarget) -> Iterator[CopiedMessage]:
        seen = set[bytes]()
        for each in self._store.messages():
            if isinstance(each, NotCopied) or self._config.cluster_of(each.identity.topic) != cluster:
                continue
            mark = mark_of(each.identity)
            if mark not in seen and not target.kind_of(each):
                yield target.placed(each)
            seen.add(mark)
