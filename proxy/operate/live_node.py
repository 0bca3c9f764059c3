"""The node as the admin port sees it: views (`broker.views`) made from live objects for each request.

What the port may change is in `proxy.operate.changes`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from msgspec.structs import asdict, replace

from broker.query import Searchable
from broker.queues.topics import Topic
from broker.retry.redrive import Redrives
from broker.runtime.seams import Clock
from broker.runtime.steps import run_now
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.transactions import Transactions
from conf.sections.node import NodeConfig
from lag.history.reading import ROWS_MAX, HistorySpan, span_of
from lag.journal.writer import FOLDER
from lag.verdicts.changes import GroupVerdict
from proxy.limits.meter import Meter
from proxy.node.assembly import retention_limits
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.node.parts import AccessMode
from proxy.node.reload import Candidate, Reloader
from proxy.node.trouble_facts import ConfigurationView, NodeTroubles
from proxy.node.views import RecoveryView, ReloadResult
from proxy.operate.attention.judgement import Judgement, LagQueues
from proxy.operate.attention.troubles import troubles_of
from proxy.operate.lookups import letters_in_kafka
from proxy.operate.lookups.in_kafka import InKafka
from proxy.operate.lookups.kafka_nodes import nodes_in_kafka
from proxy.operate.lookups.lag import lag_queues
from proxy.operate.lookups.lag_history import course_steps, event_view, objectives_steps, trend_steps
from proxy.operate.lookups.masks import MasksInForce, MessageMasks
from proxy.operate.lookups.message_way import MessageInGroup
from proxy.operate.lookups.messages_in_kafka import KafkaMessageSearch
from proxy.operate.lookups.settings import Settings, settings_of, settings_of_group
from proxy.operate.lookups.waiting_in_kafka import WaitingInKafka
from proxy.operate.moments import moment_text
from proxy.operate.views.changes import GroupLoss, LossesAnswer
from proxy.operate.views.dead_letters import DeadLetterFigures, DeadLettersAnswer
from proxy.operate.views.lag_history import EventView, LagCourse, LagTrend, ObjectivesAnswer
from proxy.operate.views.limits import ClientView, HeldView, LimitsAnswer
from proxy.operate.views.messages import MessagesAnswer
from proxy.operate.views.node import ConnectionView, MemoryView, NodesAnswer, State, StoreView
from proxy.operate.views.topics import TopicInKafka, TopicRetention, TopicView
from proxy.recording.verdicts import Judging
from pyddmq.version import product_version
from upstream.delivery.group import ConsumerGroup
from upstream.delivery.stats import JobReader
from upstream.delivery.subscription import Subscription
from upstream.embedded.queues import EmbeddedQueues
from upstream.figures.tracing import Tracing
from upstream.job import GroupQueue, UpstreamJob
from upstream.kafka.link import ScanFound, TopicScan
from upstream.operate.positions import positions
from upstream.state import JobState
from upstream.views import GroupView, Position, StuckMessage

# Messages that are stuck: heads that hold others of their key up, and whatever has failed and is not finished yet.
#
# Cold path: it looks at every job that was read, which are a hundred thousand at most per subscription (D15).

DEAD_LETTER_REFUSED = "dead letter refused"
"""State of a BURYING job whose dead letter the store has not taken; it is tried again every second."""
_LEAVING = (JobState.BURYING, JobState.UNDECIDED, JobState.HELD)


def stuck_messages(group: ConsumerGroup, *, clock: Clock, count_max: int) -> tuple[list[StuckMessage], int]:
    """Return the longest stuck messages of a group, the oldest first, and how many there are in all."""
    reader = JobReader(clock)
    found = [
        (job, subscription)
        for group_queue in group.group_queues()
        if (subscription := group.generation_of(group_queue)) is not None
        for job in group_queue.live.values()
        if _is_stuck(job) and not subscription.outcomes.leaving.is_departing(job)
    ]
    found.sort(key=lambda each: reader.since(each[0]))
    return [_message(group, job, subscription, reader) for job, subscription in found[:count_max]], len(found)


def _is_stuck(job: UpstreamJob) -> bool:
    if job.state in (JobState.WAITING, JobState.FINISHED, JobState.ABANDONED):
        return False
    call = job.group_queue.calls.get(job.offset)
    if call is not None and call.late:
        return True
    return job.successor is not None or job.history is not None or job.state in _LEAVING


def _message(group: ConsumerGroup, job: UpstreamJob, subscription: Subscription, reader: JobReader) -> StuckMessage:
    known = asdict(reader.stuck(job))
    if job.state in (JobState.BURYING, JobState.UNDECIDED) and subscription.outcomes.leaving.is_refused(job):
        known["state"] = DEAD_LETTER_REFUSED
    due_ms = None
    if job.delivery is not None:
        due_ms = reader.to_wall(job.delivery.deadline)
    elif job.history is not None and (job.state is JobState.RETRYING or subscription.gate_holder is job):
        due_ms = job.history.due_wall_ms
    return StuckMessage(**known, group=group.name, queue=job.queue_id, id=subscription.message_id(job), due_ms=due_ms)


def _in_group(group: ConsumerGroup, group_queue: GroupQueue, offset: int, clock: Clock) -> MessageInGroup:
    job, reader = group_queue.live.get(offset), JobReader(clock)
    if job is None:
        state = "finished" if group_queue.tracker.is_finished(offset) else "not read yet"
        return MessageInGroup(group=group.name, state=state)
    history, delivery = job.history, job.delivery
    due_ms = None if history is None or job.state is not JobState.RETRYING else history.due_wall_ms or None
    return MessageInGroup(
        group=group.name,
        state=job.state.value,
        holder=None if delivery is None else delivery.holder.address,
        holder_client=None if delivery is None else delivery.holder.client or None,
        held_ms=None if delivery is None else reader.to_wall(delivery.since),
        attempts=0 if history is None else max(history.attempts, 1),
        since_ms=None if history is None else reader.to_wall(history.since),
        due_ms=due_ms if delivery is None else reader.to_wall(delivery.deadline),
        reason=None if history is None else history.reason or None,
    )


# Clients and their limits, from a live node.


def _client(meter: Meter, opened: Opened | None, now_ms: int, in_kafka: int) -> ClientView:
    is_principal, undecided = meter.kind == "principal", 0
    if is_principal and opened is not None:
        undecided = opened.transactions.halves.owned[meter.name] + meter.halves + in_kafka
    pending = None if meter.pending_max is None else meter.pending.count(now_ms)
    return ClientView(
        told_by=meter.kind,
        client=meter.name,
        connections=meter.connections.total(),
        parked_pulls=meter.parked.total(),
        open_transactions=undecided if is_principal else None,
        pending_timers=pending,
        held=[
            HeldView(limit=limit, text=held.said, since_ms=held.since_ms, waited=held.waited, refused=held.refused)
            for limit, held in meter.held_now().items()
        ],
    )


GROUPS_AT_ONCE, TOPICS_AT_ONCE = 16, 256
"""Groups, and topics, that are looked at in one step."""
_STATES: dict[str, State] = {"starting": "starting", "recovering": "recovering", "ready": "ready", "failed": "failed"}


class LiveNode:
    """A node, as the admin port needs it. Every method is called on the loop's thread and returns at once.

    Attributes:
        version: Of pyddmq.
        cluster: Name of the cluster.
        broker_name: Name of the broker, which the handles of timers hold.
        clock: The node's clocks.
        metrics: The node's counters.
        limited_log: Told of faults; it writes a line per kind and minute.
        loop_lag: Returns how late the loop was, in seconds; 0 until `observe`.
        last_judgement: The last judgement (`proxy.operate.attention.findings`), and when it was made.
        first_seen: When each finding was first seen, in ms.
    """

    loop_lag: Callable[[], float] = staticmethod(lambda: 0.0)
    last_judgement: tuple[float, Judgement] | None = None
    first_seen: Mapping[tuple[object, ...], int] = MappingProxyType({})

    def __init__(self, node: Node, reloader: Reloader) -> None:
        self.version = product_version()
        runtime, settings = node.runtime, node.in_force.config.node
        self.clock, self.metrics, self.limited_log = runtime.clock, runtime.metrics, runtime.limited_log
        self.cluster, self.broker_name = settings.broker_cluster, settings.broker_name
        self._node = node
        self._in_force = node.in_force
        self._disk = runtime.disk
        self._reloader = reloader
        self._masks = MasksInForce()

    @property
    def masks(self) -> MessageMasks:
        """What is not shown of messages."""
        return self._masks.of(self._in_force.config)

    @property
    def tracing(self) -> Tracing | None:
        """Makes spans of messages; None where nothing is traced."""
        return self._node.parts.tracing

    @property
    def state(self) -> State:
        """Where the node is in its life; a stopped one still shows as draining while its port closes."""
        return _STATES.get(self._node.state, "draining")

    @property
    def reasons(self) -> Sequence[str]:
        """Why the node is not ready, a sentence each; empty when it is."""
        state = self.state
        if state == "ready":
            return ()
        if state == "failed":
            failed = None if self._node.opened is None else self._node.opened.store.failed
            since = 0 if failed is None else failed.at_ms
            why = self._node.failure or "The node does not accept writes."
            return (f"{why}.", f"Since {moment_text(since)}.") if since else (why,)
        if state == "starting":
            return ("The store is opening.",)
        recovery = self.recovery
        if recovery is not None:
            return (f"The store is recovering: {recovery.sentence}.",)
        return ("The node is stopping, and waits for messages in flight.",)

    @property
    def recovery(self) -> RecoveryView | None:
        """How far the recovery of this start is; None when there is none."""
        startup = self._node.startup
        return None if startup is None else startup.view

    @property
    def access(self) -> AccessMode:
        """What says who may do what."""
        return self._node.parts.access_mode

    @property
    def started_monotonic(self) -> float:
        """When the node was started, on the monotonic clock."""
        return self._node.started_monotonic

    @property
    def _topics(self) -> Mapping[str, Topic]:
        opened = self._node.opened
        return {} if opened is None else opened.store.topics

    def topics(self) -> Sequence[TopicView]:
        """Every topic of the store, the system's too."""
        return run_now(self.topics_in_steps())

    def topics_in_steps(self) -> Generator[None, None, list[TopicView]]:
        """`topics`, some at a time."""
        views = []
        for number, topic in enumerate(list(self._topics.values()), start=1):
            views.append(TopicView.of(topic))
            if number % TOPICS_AT_ONCE == 0:
                yield
        return views

    def topic_names(self) -> Sequence[str]:
        """Names of all topics of the store, the system's too."""
        return list(self._topics)

    def topic(self, name: str) -> TopicView | None:
        """Return one topic of the store; None when there is none of that name."""
        topic = self._topics.get(name)
        return None if topic is None else TopicView.of(topic)

    def topic_retention(self, name: str) -> TopicRetention | None:
        """Return what the retention of an open store keeps of a topic. Raises OSError: the log cannot be read."""
        opened = self._node.opened
        if opened is None:
            return None
        retention, retaining = opened.store.retention, opened.retaining
        limits, expiring = retention.limits, retention.next_file
        view = TopicRetention(
            age_ms=limits.age_ms,
            bytes_max=limits.log_bytes,
            disk_ratio=limits.disk_ratio,
            disk_ratio_forced=limits.disk_ratio_forced,
            log_bytes=retention.log_bytes,
        )
        if expiring is None:
            return view
        queues = opened.store.topics[name].queues
        kept = {queue: first for (topic, queue), first in expiring.minimums.items() if topic == name}
        is_dated = limits.age_ms and expiring.last_ms is not None
        return replace(
            view,
            file=expiring.start,
            due_ms=(expiring.last_ms or 0) + (limits.age_ms or 0) if is_dated else None,
            reason=expiring.reason,
            deleted=sum(first - queues[queue].min_offset for queue, first in kept.items()),
            losses=retaining.losses_of_next(name),
        )

    def topics_in_kafka(self) -> Sequence[TopicInKafka]:
        """Topics of the configuration that are in Kafka, by name."""
        config, clients = self._in_force.config, self._node.parts.kafka
        return [
            TopicInKafka(topic=name, cluster=cluster, partitions=clients.partitions(cluster, name))
            for name in sorted(config.topics)
            if (cluster := config.cluster_of(name)) is not None
        ]

    @property
    def waiting_in_kafka(self) -> WaitingInKafka:
        """What waits on Kafka."""
        return WaitingInKafka(self._in_force.config, self._node.parts.kafka.waiting)

    def nodes_in_kafka(self) -> NodesAnswer:
        """The nodes that share groups over Kafka, as the clusters said last; those that have not lately are asked."""
        kafka = self._node.parts.kafka
        waiting = self.waiting_in_kafka.partitions()
        return nodes_in_kafka(self._in_force.config, kafka.members, waiting, self.clock.wall_ms())

    @property
    def in_kafka(self) -> InKafka:
        """What of the configuration is in Kafka."""
        return InKafka(self._in_force.config)

    async def scan(self, cluster: str, scan: TopicScan) -> ScanFound:
        """Look through a topic in Kafka beside the loop. Raises KafkaFailure."""
        return await self._node.parts.kafka.scan(cluster, scan)

    async def letters_in_kafka(
        self, given: Mapping[str, str], *, scans_max: int | None = None
    ) -> DeadLetterFigures | DeadLettersAnswer | None:
        """Return dead letters of a group over Kafka, or its figures; None: these take more than `scans_max` scans.

        Args:
            given: As `proxy.operate.lookups.dead_letters.PARAMETERS`.
            scans_max: A bound for figures.

        Raises:
            QueryRefused, NotFound, ClusterUnavailable: As `messages_in_kafka`.
        """
        cluster = self.in_kafka.cluster_of_letters(given["group"])
        assert cluster is not None, "its dead letters are in Kafka"
        letters, now_ms = self._node.parts.kafka.letters(cluster, given["group"]), self.clock.wall_ms()
        return await letters_in_kafka.search(letters, cluster, given, now_ms=now_ms, scans_max=scans_max)

    async def messages_in_kafka(self, given: Mapping[str, str]) -> MessagesAnswer | None:
        """Return messages of a topic in Kafka; None: it is not there.

        Args:
            given: As `proxy.operate.lookups.messages.PARAMETERS`.

        Raises:
            QueryRefused: The parameters make no sense.
            NotFound: What was requested is not there.
            ClusterUnavailable: The cluster does not respond, or refuses.
        """
        topic = given.get("topic", "")
        cluster = self.in_kafka.cluster_of(topic)
        if cluster is None:
            return None
        search = KafkaMessageSearch(
            cluster, given, now_ms=self.clock.wall_ms(), mask=self.masks.of(topic), tracing=self.tracing
        )
        return await search.found(partial(self.scan, cluster))

    def groups(self, *, details_max: int, name: str | None = None) -> Sequence[GroupView]:
        """Every group, those that leave included, with at most `details_max` deliveries; of one name when given."""
        groups = self._in_force.all_groups()
        return [group.stats(details_max=details_max) for group in groups if name in (None, group.name)]

    def groups_in_steps(self, *, details_max: int) -> Generator[None, None, Sequence[GroupView]]:
        """`groups`, some at a time; one that a reload adds meanwhile may be absent."""
        views: list[GroupView] = []
        for number, group in enumerate(self._in_force.all_groups(), start=1):
            views.append((yield from group.reading_stats(details_max=details_max)))
            if number % GROUPS_AT_ONCE == 0:
                yield
        return views

    def stuck(self, *, group: str | None, count_max: int) -> tuple[Sequence[StuckMessage], int] | None:
        """Stuck messages, of one group when given, the oldest first, and how many there are; None: no such group."""
        groups = self._in_force.groups
        if group is not None and group not in groups:
            return None
        found: list[StuckMessage] = []
        total = 0
        for each in groups.values() if group is None else [groups[group]]:
            messages, count = stuck_messages(each, clock=self.clock, count_max=count_max)
            total += count
            found += messages
        found.sort(key=lambda each: each.since_ms)
        return found[:count_max], total

    @property
    def log_begin(self) -> int:
        """Commit-log offset of the oldest record."""
        opened = self._node.opened
        return 0 if opened is None else opened.store.index.log.min_offset

    def in_groups(self, *, topic: str, queue: int, offset: int) -> Sequence[MessageInGroup]:
        """Return what each group that reads a queue does with one message of it."""
        return [
            _in_group(each, group_queue, offset, self.clock)
            for each in self._in_force.groups.values()
            if each.has_topic(topic) and (group_queue := each.group_queue(topic, queue, offset)) is not None
        ]

    def delays(self) -> Delays | None:
        """Return the delivery of delayed messages, or None before it is open."""
        opened = self._node.opened
        return None if opened is None else opened.delays

    def dead_letters(self) -> tuple[Store, Redrives] | None:
        """Return the store and what was redriven in it, or None before it is open."""
        opened = self._node.opened
        return None if opened is None else (opened.store, opened.redrives)

    def transactions(self) -> Transactions | None:
        """Return the transactions, or None before they are open."""
        opened = self._node.opened
        return None if opened is None else opened.transactions

    def timers(self) -> Timers | None:
        """Return the delivery of timers, or None before it is open."""
        opened = self._node.opened
        return None if opened is None else opened.timers

    def positions(self, *, group: str | None) -> Sequence[Position]:
        """Where groups stand, those without a configuration too; of one group when given."""
        opened = self._node.opened
        if opened is None:
            return ()
        found = list(positions(opened.progress, EmbeddedQueues(opened.store), group=group))
        for name in self._in_force.groups if group is None else [group]:
            kafka = self._node.parts.kafka_groups.of(name)
            if kafka is not None:
                found += positions(kafka.progress, kafka, group=name)
        return found

    def lag_queues(self, *, leisurely: bool = False) -> Generator[None, None, LagQueues]:
        """Judge in steps how far all groups are behind (`proxy.recording.judging` says what `leisurely` is)."""
        recorder = self._node.recording.recorder
        return lag_queues(recorder, self._in_force, self.clock.wall_ms(), leisurely=leisurely)

    def has_group(self, name: str) -> bool:
        """Whether a group of this name is configured, or still leaves."""
        return name in self._in_force.groups or self._in_force.leaving_group(name) is not None

    def observe(self, *, loop_lag: Callable[[], float], judging: Judging) -> None:
        """Take what the admin port has.

        Args:
            loop_lag: Returns how late the loop was, in seconds.
            judging: Judges the node after each round of samples, so that changes of verdicts are logged and posted.
        """
        self.loop_lag = loop_lag
        self._node.recording.recorder.verdicts.judging = judging

    def trend(self, *, group: str | None, span_ms: int) -> Generator[None, None, LagTrend]:
        """Read in steps how lag went over the last so many ms: by group, or by queue of one."""
        return trend_steps(self._disk, self._journal, self._span(span_ms), group=group)

    def objectives(
        self, *, group: str | None, span_ms: int, target_ms: int, at_least: float | None = None
    ) -> Generator[None, None, ObjectivesAnswer]:
        """Read in steps for which share of the last so many ms an objective was kept: by group, or by queue of one."""
        disk, span = self._disk, self._span(span_ms)
        return objectives_steps(disk, self._journal, span, target_ms, group=group, at_least=at_least)

    def course(self, *, group: str, span_ms: int) -> Generator[None, None, LagCourse]:
        """Read in steps how one group went over the last so many ms."""
        return course_steps(self._disk, self._journal, self._span(span_ms), group=group)

    def events(self) -> Sequence[EventView]:
        """What happened to the node and its groups since its start, the newest first."""
        return [event_view(each) for each in reversed(self._node.recording.recorder.notes.recent)]

    def settings(self, *, each_max: int) -> Settings:
        """Return the configuration in force without secrets, with at most `each_max` topics and groups."""
        return settings_of(self._in_force.config, each_max=each_max)

    def settings_of_group(self, name: str) -> Settings:
        """Return the settings of a group in force, without secrets; empty where it is not configured."""
        return settings_of_group(self._in_force.config, name)

    @property
    def configuration(self) -> ConfigurationView:
        """The configuration file: whether it was refused, or is missing."""
        return self._reloader.configuration

    @property
    def _journal(self) -> str:
        return f"{self._in_force.config.node.data}/{FOLDER}"

    def _span(self, span_ms: int) -> HistorySpan:
        """Return what is read for the last so many ms: no more than a node reads for one question."""
        now_ms, every_ms = self.clock.wall_ms(), self._in_force.config.lag.every_ms
        queues = len(self._node.recording.recorder.windows)
        return span_of(now_ms - max(1, span_ms), now_ms, queues=queues, every_ms=every_ms, rows_max=ROWS_MAX)

    def verdicts(self) -> Sequence[tuple[str, GroupVerdict, Sequence[str]]]:
        """Return each group that has a reported verdict, with it and the group's `alarmGroup`."""
        return self._node.recording.recorder.verdicts.reported()

    def limits(self, *, limit: int, name: str | None) -> LimitsAnswer | None:
        """Clients that have limits, those that are held first; one when given, None where it is not counted."""
        opened, now_ms = self._node.opened, self.clock.wall_ms()
        meters = [each for each in self._node.parts.limiter.meters() if name in (None, each.name)]
        if name is not None and not meters:
            return None
        meters.sort(key=lambda each: (not (each.held and each.held_now()), each.kind != "principal", each.name))
        halves = self._node.parts.kafka.undecided_of
        clients = [_client(each, opened, now_ms, halves(each.name)) for each in meters[:limit]]
        return LimitsAnswer(now_ms=now_ms, clients_total=len(meters), clients=clients)

    def connections(self) -> Sequence[ConnectionView]:
        """Every open connection of the two Thrift ports."""
        if self._node.state == "starting":
            return ()
        now, now_ms = self.clock.monotonic(), self.clock.wall_ms()
        return [
            ConnectionView(
                address=each.address,
                service=service,
                since_ms=each.since_ms,
                requests=each.requests,
                state=each.doing,
                unsent_bytes=each.outbox.held_bytes,
                unsent_since_ms=None
                if (since := each.outbox.stuck_since) is None
                else now_ms - int((now - since) * 1000),
                client=each.client or None,
            )
            for service, each in self._node.connections()
        ]

    def store(self) -> StoreView | None:
        """Return what is known of the data directory, or None before it is open."""
        opened, node = self._node.opened, self._in_force.config.node
        if opened is None:
            return None
        return StoreView(
            path=node.data,
            used_bytes=opened.store.used_bytes,
            free_bytes=self._disk.free_bytes(node.data),
            flush=node.flush,
        )

    def searchable(self) -> Searchable | None:
        """Return the store for queries of messages, or None before it is open."""
        opened = self._node.opened
        return None if opened is None else opened.store

    def troubles(self) -> NodeTroubles:
        """Return what the node says of its troubles."""
        return troubles_of(self._node, self._reloader.configuration)

    def memory(self) -> MemoryView:
        """What is held in memory, against the ceiling."""
        budget = self._node.parts.memory.budget
        return MemoryView(held_bytes=budget.used, max_bytes=budget.limit, pressure=budget.level.name.lower())

    def losses(self, given: Mapping[str, str]) -> LossesAnswer | None:
        """Return by group the unfinished messages that limits of retention, or the deletion of a topic, would delete.

        Args:
            given: `topic`, or the limits by their names in the configuration; one that is missing is as it is.

        Raises:
            ValueError: A limit is not a number.
            OSError: The log or a queue's file cannot be read.
        """
        opened = self._node.opened
        if opened is None:
            return None
        retaining, topic = opened.retaining, given.get("topic")
        if topic is not None:
            losses = retaining.losses_with(topic)
        else:
            update = {attribute: _limit(alias, given[alias]) for attribute, alias in _LIMITS.items() if alias in given}
            losses = retaining.losses_under(retention_limits(self._in_force.config.node.model_copy(update=update)))
        return LossesAnswer(groups=[GroupLoss(group=name, messages=count) for name, count in sorted(losses.items())])

    async def reload(self, *, accept_loss: bool = False) -> ReloadResult:
        """Read the configuration again and apply what changed, all or nothing, in one turn."""
        await asyncio.sleep(0)
        return await self._reloader.reload(accept_loss=accept_loss)

    async def preview_reload(self, *, accept_loss: bool = False, candidate: Candidate | None = None) -> ReloadResult:
        """Return what `reload` would change, or why it would be refused."""
        return await self._reloader.preview(accept_loss=accept_loss, candidate=candidate)


_LIMITS = {name: str(NodeConfig.model_fields[name].alias) for name in NodeConfig.model_fields if "retention_" in name}


def _limit(name: str, text: str) -> float | None:
    try:
        limit = float(text) if text else None
    except ValueError:
        limit = -1
    if limit is not None and not 0 <= limit < 2.0**63:
        raise ValueError(f"invalid {name} {text[:100]!r}; pass a number, or an empty value for no limit")
    return limit
