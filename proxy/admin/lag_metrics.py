"""Gauges of lag by the last judgement: our names, and those of klag-exporter and kafka-lag-exporter beside them.

Dashboards and alerts made for those exporters find what they ask for: a queue is a partition, the broker's cluster the
`cluster_name`. Labels that name members (`member_host`, `consumer_id`, `client_id`) are absent, which a query takes for
empty. What is not known is absent, and never 0.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator

from broker.runtime.metrics import SPECS, declare
from lag.rules.statuses import Level
from proxy.operate.attention.judgement import Judgement
from proxy.operate.views.lag import LagQueue
from proxy.operate.views.topics import TopicView

QUEUES_MAX = 2_000
"""Queues that have gauges of their own, the worst."""
_QUEUE = ("group", "topic", "queue")
_KAFKA_GROUP = ("cluster_name", "group")
_KAFKA_TOPIC = ("cluster_name", "group", "topic")
_KAFKA_QUEUE = ("cluster_name", "group", "topic", "partition")
_KAFKA_PARTITION = ("cluster_name", "topic", "partition")

MESSAGES = declare("pyddmq_lag_messages", "Messages of a queue from the committed offset to the end", _QUEUE, "gauge")
UNFINISHED = declare("pyddmq_lag_unfinished_messages", "Unfinished messages among these", _QUEUE, "gauge")
SECONDS = declare(
    "pyddmq_lag_seconds",
    "Age of the oldest unfinished message of a queue, or its lower bound",
    _QUEUE,
    "gauge",
)
STATUS = declare(
    "pyddmq_lag_status",
    "Status of a queue by the lag rules (docs/lag-rules.md): 0 OK, 1 WARN, 2 ERR, 3 UNKNOWN",
    (*_QUEUE, "status"),
    "gauge",
)
CAUSE = declare("pyddmq_lag_cause", "1 for the cause of a queue's status by the lag rules", (*_QUEUE, "cause"), "gauge")
VELOCITY = declare(
    "pyddmq_lag_velocity", "Growth of a queue's lag in messages per second; negative when it shrinks", _QUEUE, "gauge"
)
CATCH_UP = declare(
    "pyddmq_lag_catch_up_seconds",
    "Time until a queue has caught up at present rates; absent unless its lag shrinks",
    _QUEUE,
    "gauge",
)
GROUP_STATUS = declare(
    "pyddmq_lag_group_status",
    "Level of a group by its queues and its findings: 0 OK, 1 WARN, 2 ERR, 3 UNKNOWN; `status` is its worst lag status",
    ("group", "status"),
    "gauge",
)
LEFT_OUT = declare(
    "pyddmq_lag_queues_left_out",
    f"Queues without gauges of their own; only the worst {QUEUES_MAX:,} have them",
    (),
    "gauge",
)
PARTITIONS_LEFT_OUT = declare(
    "pyddmq_lag_partitions_left_out",
    f"Queues without `kafka_partition_*` gauges: the first {QUEUES_MAX:,} by topic have them",
    (),
    "gauge",
)
OFFSET = declare("kafka_consumergroup_group_offset", "Committed offset of a queue", _KAFKA_QUEUE, "gauge")
KAFKA_LAG = declare("kafka_consumergroup_group_lag", "As `pyddmq_lag_messages`", _KAFKA_QUEUE, "gauge")
KAFKA_SECONDS = declare("kafka_consumergroup_group_lag_seconds", "As `pyddmq_lag_seconds`", _KAFKA_QUEUE, "gauge")
KAFKA_RATIO = declare(
    "kafka_consumergroup_group_lag_retention_ratio",
    "Lag in percent of the stored messages",
    _KAFKA_QUEUE,
    "gauge",
)
KAFKA_LOST = declare(
    "kafka_consumergroup_group_messages_lost",
    "Unfinished messages deleted by retention, over all time",
    _KAFKA_QUEUE,
    "gauge",
)
MAX_LAG = declare("kafka_consumergroup_group_max_lag", "Largest lag of a group's queues", _KAFKA_GROUP, "gauge")
MAX_SECONDS = declare(
    "kafka_consumergroup_group_max_lag_seconds", "Age of a group's oldest unfinished message", _KAFKA_GROUP, "gauge"
)
SUM_LAG = declare("kafka_consumergroup_group_sum_lag", "Sum of a group's lag", _KAFKA_GROUP, "gauge")
TOPIC_LAG = declare("kafka_consumergroup_group_topic_sum_lag", "Sum of a group's lag in a topic", _KAFKA_TOPIC, "gauge")
LATEST = declare("kafka_partition_latest_offset", "End of a queue", _KAFKA_PARTITION, "gauge")
EARLIEST = declare("kafka_partition_earliest_offset", "First stored offset of a queue", _KAFKA_PARTITION, "gauge")

LAG_NAMES = frozenset(
    {
        MESSAGES,
        UNFINISHED,
        SECONDS,
        STATUS,
        CAUSE,
        VELOCITY,
        CATCH_UP,
        GROUP_STATUS,
        LEFT_OUT,
        PARTITIONS_LEFT_OUT,
        OFFSET,
        KAFKA_LAG,
        KAFKA_SECONDS,
        KAFKA_RATIO,
    }
    | {KAFKA_LOST, MAX_LAG, MAX_SECONDS, SUM_LAG, TOPIC_LAG, LATEST, EARLIEST}
)
"""All that `lag_text` writes."""
STEP_GAUGES = 200
"""Gauges that a step writes: about a millisecond."""
Gauge = tuple[str, tuple[str, ...], float]
"""Name, values of the labels, value."""


def lag_text(judged: Judgement, topics: list[TopicView], cluster: str) -> Generator[None, None, bytes]:
    """Write the gauges as Prometheus reads them, in steps; arguments as of `lag_gauges`."""
    lines: dict[str, list[str]] = {}
    texts: dict[tuple[str, ...], str] = {}
    for number, (name, labels, value) in enumerate(lag_gauges(judged, topics, cluster), start=1):
        if not number % STEP_GAUGES:
            yield
        # A queue's gauges have the same labels.
        key = (*SPECS[name].labels, *labels)
        text = texts.get(key)
        if text is None:
            text = texts[key] = _labels_text(SPECS[name].labels, labels)
        of_name = lines.get(name)
        if of_name is None:
            of_name = lines[name] = [f"# HELP {name} {SPECS[name].help}\n# TYPE {name} gauge\n"]
        of_name.append(f"{name}{text} {value!r}\n")
    return "".join(["".join(lines[name]) for name in sorted(lines)]).encode()


def _labels_text(names: tuple[str, ...], labels: tuple[str, ...]) -> str:
    pairs = ",".join([f'{name}="{_escaped(text)}"' for name, text in zip(names, labels, strict=True)])
    return f"{{{pairs}}}" if pairs else ""


def _escaped(text: str) -> str:
    if "\\" in text or "\n" in text or '"' in text:
        text = text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
    return text


def lag_gauges(judged: Judgement, topics: list[TopicView], cluster: str) -> Iterator[Gauge]:
    """Yield the gauges.

    Args:
        judged: The last judgement.
        topics: The node's topics; those of its own are left out.
        cluster: Name of the cluster.
    """
    ranges = [(topic.topic, each) for topic in topics if not topic.system for each in topic.queues]
    for topic, kept in ranges[:QUEUES_MAX]:
        yield LATEST, (cluster, topic, f"{kept.queue}"), float(kept.max)
        yield EARLIEST, (cluster, topic, f"{kept.queue}"), float(kept.min)
    yield PARTITIONS_LEFT_OUT, (), float(max(0, len(ranges) - QUEUES_MAX))
    if not judged.lag.enabled:
        return
    yield LEFT_OUT, (), float(max(0, len(judged.queues) - QUEUES_MAX))
    for each in judged.queues[:QUEUES_MAX]:
        yield from _of_queue(each, cluster)
    yield from _of_groups(judged, cluster)


def _of_queue(each: LagQueue, cluster: str) -> Iterator[Gauge]:
    own = (each.group, each.topic, f"{each.queue}")
    yield STATUS, (*own, each.status), float(Level[each.level])
    if each.cause:
        yield CAUSE, (*own, each.cause), 1.0
    seconds = _seconds(each)
    for names, value in (
        ((MESSAGES, KAFKA_LAG), each.lag),
        ((UNFINISHED, None), each.unfinished),
        ((SECONDS, KAFKA_SECONDS), seconds),
        ((VELOCITY, None), each.velocity),
        ((CATCH_UP, None), each.catch_up_s),
        ((None, OFFSET), each.committed),
        ((None, KAFKA_RATIO), each.retention_ratio),
        ((None, KAFKA_LOST), each.lost),
    ):
        if value is None:
            continue
        ours, theirs = names
        if ours is not None:
            yield ours, own, float(value)
        if theirs is not None:
            yield theirs, (cluster, *own), float(value)


def _of_groups(judged: Judgement, cluster: str) -> Iterator[Gauge]:
    lags: dict[str, list[int]] = {}
    late: dict[str, list[float]] = {}
    topics: dict[tuple[str, str], int] = {}
    for each in judged.queues:
        if each.lag is not None:
            lags.setdefault(each.group, []).append(each.lag)
            topics[each.group, each.topic] = topics.get((each.group, each.topic), 0) + each.lag
        seconds = _seconds(each)
        if seconds is not None:
            late.setdefault(each.group, []).append(seconds)
    for group in judged.groups:
        yield GROUP_STATUS, (group.group, group.status), float(Level[group.level])
    for name, known in lags.items():
        yield MAX_LAG, (cluster, name), float(max(known))
        yield SUM_LAG, (cluster, name), float(sum(known))
    for name, ages in late.items():
        yield MAX_SECONDS, (cluster, name), max(ages)
    for (name, topic), lag in topics.items():
        yield TOPIC_LAG, (cluster, name, topic), float(lag)


def _seconds(each: LagQueue) -> float | None:
    late_ms = each.time_lag_ms if each.time_lag_ms is not None else each.time_lag_low_ms
    return None if late_ms is None else late_ms / 1000
