"""A node as the admin port sees it, made of plain values: for tests of the pages and documents themselves."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from msgspec.structs import replace

from broker.query import Searchable
from broker.retry.redrive import Redrives
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock
from broker.scheduled.delay.delays import Delays
from broker.scheduled.timer.timers import Timers
from broker.store import Store
from broker.transaction.transactions import Transactions
from broker.views import QueueRange
from conf import loads
from lag.verdicts.changes import GroupVerdict
from proxy.node.parts import AccessMode
from proxy.node.reload import Candidate
from proxy.node.trouble_facts import ConfigurationView, NodeTroubles
from proxy.node.views import RecoveryView, ReloadResult
from proxy.operate.attention.findings import judged
from proxy.operate.attention.judgement import LagQueues
from proxy.operate.live_node import LiveNode
from proxy.operate.lookups.in_kafka import InKafka
from proxy.operate.lookups.masks import MessageMasks
from proxy.operate.lookups.message_way import MessageInGroup
from proxy.operate.lookups.settings import Settings
from proxy.operate.lookups.waiting_in_kafka import WaitingInKafka
from proxy.operate.views.findings import Finding
from proxy.operate.views.lag_history import EventView, LagCourse, LagTrend, ObjectivesAnswer
from proxy.operate.views.limits import LimitsAnswer
from proxy.operate.views.node import ConnectionView, KafkaClusterNodes, MemoryView, NodesAnswer, State, StoreView
from proxy.operate.views.topics import TopicInKafka, TopicRetention, TopicView
from proxy.recording.verdicts import Judging
from upstream.figures.tracing import Tracing
from upstream.views import Delivery, GroupView, Position, QueueLag, StuckKey, StuckMessage, SubscriptionView

NOW_MS = 1_760_000_000_000


class FixedClock:
    """A clock that stands at `NOW_MS` and 1,000 s."""

    def wall_ms(self) -> int:
        return NOW_MS

    def wall_us(self) -> int:
        return NOW_MS * 1000

    def monotonic(self) -> float:
        return 1_000.0

    def since_boot(self) -> float:
        return self.monotonic()

    def sleep(self, seconds: float) -> None:
        pass


class PlainNode(LiveNode):
    """Holds lists and hands them out; `reload` counts its calls and answers `outcome`. There is no node behind it."""

    state: State = "ready"
    reasons: Sequence[str] = ()
    recovery: RecoveryView | None = None
    access: AccessMode = "loopback"
    tracing: Tracing | None = None
    masks = MessageMasks({})
    waiting_in_kafka = WaitingInKafka(loads("").config, {})
    started_monotonic: float = 100.0

    def __init__(self) -> None:
        self.version = "0.2.0"
        self.cluster = "DefaultCluster"
        self.broker_name = "broker-0"
        self.clock: Clock = FixedClock()
        self.limited_log = RateLimitedLog(self.clock)
        self.metrics = Metrics()
        self.topic_list: list[TopicView] = []
        self.group_list: list[GroupView] = []
        self.stuck_list: list[StuckMessage] = []
        self.cluster_list: list[KafkaClusterNodes] = []
        self.position_list: list[Position] = []
        self.connection_list: list[ConnectionView] = []
        self.store_view: StoreView | None = StoreView(
            path="/srv/data", used_bytes=134_217_728, free_bytes=83_000_000_000, flush="sync"
        )
        self.outcome = ReloadResult(accepted=True, changes=("group billing: concurrency 8 -> 16",))
        self.reloads = 0
        self.candidate: Candidate | None = None
        self.event_list: list[EventView] = []
        self.course_view = LagCourse(
            since_ms=NOW_MS - 180_000, width_ms=1_000, published=[None] * 180, finished=[None] * 180, lag=[None] * 180
        )
        self.settings_view: Settings = {"topics": {"permits": {}}, "groups": [{"group": "permits-audit"}]}
        self.configuration_view = ConfigurationView(file="/etc/pyddmq/node.yaml")
        self.lag_view = LagQueues(now_ms=NOW_MS)
        self.messages: Searchable | None = None
        self.letters: tuple[Store, Redrives] | None = None
        self.way_list: list[MessageInGroup] = []
        self.troubles_view = NodeTroubles()
        self.memory_view = MemoryView(held_bytes=1_048_576, max_bytes=536_870_912)

    def __setattr__(self, name: str, value: object) -> None:
        # The clock stands still: a kept judgement would never be too old.
        if name != "last_judgement":
            super().__setattr__(name, value)

    def topics(self) -> Sequence[TopicView]:
        return self.topic_list

    def topics_in_steps(self) -> Generator[None, None, list[TopicView]]:
        yield
        return list(self.topics())

    def topic_names(self) -> Sequence[str]:
        return [each.topic for each in self.topic_list]

    def topic(self, name: str) -> TopicView | None:
        return next((each for each in self.topic_list if each.topic == name), None)

    def topic_retention(self, name: str) -> TopicRetention:
        return TopicRetention(age_ms=None, bytes_max=None, disk_ratio=None, disk_ratio_forced=None, log_bytes=0)

    def topics_in_kafka(self) -> Sequence[TopicInKafka]:
        return ()

    def nodes_in_kafka(self) -> NodesAnswer:
        return NodesAnswer(now_ms=NOW_MS, clusters=self.cluster_list)

    @property
    def in_kafka(self) -> InKafka:
        return InKafka(loads("{}").config)

    def groups(self, *, details_max: int, name: str | None = None) -> Sequence[GroupView]:
        return [
            replace(group, in_flight=group.in_flight[:details_max], in_flight_total=len(group.in_flight))
            for group in self.group_list
            if name in (None, group.group)
        ]

    def groups_in_steps(self, *, details_max: int) -> Generator[None, None, Sequence[GroupView]]:
        yield
        return self.groups(details_max=details_max)

    def stuck(self, *, group: str | None, count_max: int) -> tuple[Sequence[StuckMessage], int] | None:
        if group is not None and group not in {each.group for each in self.group_list}:
            return None
        found = [each for each in self.stuck_list if group in (None, each.group)]
        return found[:count_max], len(found)

    def lag_queues(self, *, leisurely: bool = False) -> Generator[None, None, LagQueues]:
        """Judge nothing, and return `lag_view`."""
        yield
        return self.lag_view

    def has_group(self, name: str) -> bool:
        return name in {each.group for each in self.group_list}

    def observe(self, *, loop_lag: Callable[[], float], judging: Judging) -> None:
        self.loop_lag = loop_lag

    def positions(self, *, group: str | None) -> Sequence[Position]:
        return [each for each in self.position_list if group in (None, each.group)]

    def trend(self, *, group: str | None, span_ms: int) -> Generator[None, None, LagTrend]:
        """Read nothing, and return an empty one."""
        yield
        since_ms = NOW_MS - span_ms
        return LagTrend(since_ms=since_ms, until_ms=NOW_MS, width_ms=1, shortened=False, lines=[])

    def course(self, *, group: str, span_ms: int) -> Generator[None, None, LagCourse]:
        """Read nothing, and return `course_view`."""
        yield
        return self.course_view

    def events(self) -> Sequence[EventView]:
        return self.event_list

    def settings(self, *, each_max: int) -> Settings:
        return self.settings_view

    def settings_of_group(self, name: str) -> Settings:
        return {}

    @property
    def configuration(self) -> ConfigurationView:
        return self.configuration_view

    def objectives(
        self, *, group: str | None, span_ms: int, target_ms: int, at_least: float | None = None
    ) -> Generator[None, None, ObjectivesAnswer]:
        """Read nothing, and return an empty one."""
        yield
        since_ms = NOW_MS - span_ms
        return ObjectivesAnswer(
            objective_ms=target_ms, since_ms=since_ms, until_ms=NOW_MS, asked_ms=span_ms, shortened=False, kept=[]
        )

    def verdicts(self) -> Sequence[tuple[str, GroupVerdict, Sequence[str]]]:
        """One group in trouble, whose alarms are for two."""
        return [("billing", GroupVerdict(status="STOP", since_ms=0), ("on-call", "billing-team"))]

    def limits(self, *, limit: int, name: str | None) -> LimitsAnswer | None:
        return None if name else LimitsAnswer(now_ms=NOW_MS, clients_total=0, clients=())

    def connections(self) -> Sequence[ConnectionView]:
        return self.connection_list

    def dead_letters(self) -> tuple[Store, Redrives] | None:
        return self.letters

    def delays(self) -> Delays | None:
        return None

    def transactions(self) -> Transactions | None:
        return None

    def timers(self) -> Timers | None:
        return None

    log_begin = 0

    def in_groups(self, *, topic: str, queue: int, offset: int) -> Sequence[MessageInGroup]:
        return self.way_list

    def searchable(self) -> Searchable | None:
        return self.messages

    def store(self) -> StoreView | None:
        return self.store_view

    def troubles(self) -> NodeTroubles:
        return self.troubles_view

    def memory(self) -> MemoryView:
        return self.memory_view

    async def reload(self, *, accept_loss: bool = False) -> ReloadResult:
        self.reloads += 1
        return self.outcome

    async def preview_reload(self, *, accept_loss: bool = False, candidate: Candidate | None = None) -> ReloadResult:
        self.candidate = candidate
        return replace(self.outcome, dry_run=True)


def findings(node: PlainNode, groups: Sequence[GroupView], loop_lag_seconds: float = 0.0) -> Sequence[Finding]:
    """Return what needs attention on a node with these groups."""
    node.group_list, node.loop_lag = list(groups), lambda: loop_lag_seconds
    return judged(node).findings


def busy_node() -> PlainNode:
    """Return a node with two groups, a stuck key, deliveries and clients."""
    node = PlainNode()
    node.topic_list = [
        TopicView(
            topic="%DLQ%permits-audit", queues=[QueueRange(queue=0, min=0, max=3)], system=True, kind="dead letters"
        ),
        TopicView(
            topic="permits",
            queues=[QueueRange(queue=n, min=5, max=1_005 + n) for n in range(2)],
            system=False,
            kind="user",
            message_type="FIFO",
        ),
    ]
    qid = "pyddmq_broker-0_0"
    audit = SubscriptionView(
        topic="permits",
        state="running",
        in_flight=3,
        waiting=40,
        lag=105,
        lag_seconds=312.5,
        queues=[
            QueueLag(qid=qid, committed=900, produced=1_005, lag=105, lag_seconds=312.5),
            QueueLag(qid="pyddmq_broker-0_1", committed=1_006, produced=1_006, lag=0, lag_seconds=0.0),
        ],
        stuck_keys=[
            StuckKey(
                key="case-10011",
                topic="permits",
                qid=qid,
                offset=900,
                attempts=2,
                holder="127.0.0.1:50312",
                holder_client="carrera-go 1.2",
                since_ms=NOW_MS - 312_500,
                waiting=37,
            ),
            StuckKey(
                key="case-7 <b>", topic="permits", qid=qid, offset=921, attempts=1, holder=None, since_ms=NOW_MS - 900
            ),
        ],
        stuck_keys_total=2,
    )
    out = [
        Delivery(
            topic="permits",
            qid=qid,
            offset=900,
            holder="127.0.0.1:50312",
            holder_client="carrera-go 1.2",
            since_ms=NOW_MS - 312_500,
        ),
        Delivery(topic="permits", qid=qid, offset=940, holder="10.0.0.7:41020", since_ms=NOW_MS - 1_500),
        Delivery(
            topic="permits",
            qid=qid,
            offset=931,
            holder="127.0.0.1:50312",
            holder_client="carrera-go 1.2",
            since_ms=NOW_MS - 400,
        ),
    ]
    billing = SubscriptionView(topic="orders", state="running", in_flight=0, waiting=0, queues=[])
    node.group_list = [
        GroupView(group="permits-audit", topics=[audit], in_flight=out, in_flight_total=3),
        GroupView(group="orders-billing", topics=[billing]),
    ]
    node.connection_list = [
        ConnectionView(
            address="127.0.0.1:50312",
            service="consumer",
            since_ms=NOW_MS - 900_000,
            requests=311,
            state="parked",
            client="carrera-go 1.2",
        ),
        ConnectionView(
            address="127.0.0.1:50313", service="producer", since_ms=NOW_MS - 60_000, requests=12, state="idle"
        ),
    ]
    return node
