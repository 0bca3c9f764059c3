"""Gauges of lag: ours and the names of exporters, absent where nothing is known, bounded in number."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
import pytest
from prometheus_client import parser as plain
from prometheus_client.core import Metric
from prometheus_client.openmetrics import parser as openmetrics

from broker.runtime.steps import run_now
from broker.views import QueueRange
from proxy.admin import lag_metrics
from proxy.admin.exposition import Exposition
from proxy.admin.lag_metrics import LAG_NAMES, QUEUES_MAX, lag_gauges, lag_text
from proxy.operate.views.lag import LagQueue
from tests.admin_node import busy_node
from tests.lag_answers import lag_judgement, lag_queue

CLUSTER = "prod"


def gauges(*queues: LagQueue, topics: bool = False) -> dict[tuple[str, ...], float]:
    """Return the gauges of an answer by name and labels."""
    answer = lag_judgement(queues)
    found = list(lag_gauges(answer, busy_node().topic_list if topics else [], CLUSTER))
    assert len({(name, labels) for name, labels, _ in found}) == len(found), "no series comes twice"
    return {(name, *labels): value for name, labels, value in found}


def test_each_figure_stands_under_our_name_and_the_exporters() -> None:
    """A dashboard of either finds it, sums and maxima too."""
    found = gauges(
        lag_queue(queue=0, lag=7, unfinished=6, time_lag_ms=1_500, committed=3, retention_ratio=12.5, lost=2),
        lag_queue(queue=1, lag=5, unfinished=5, time_lag_ms=500, status="STOP"),
    )
    assert found["pyddmq_lag_messages", "billing", "orders", "0"] == 7
    assert found["pyddmq_lag_unfinished_messages", "billing", "orders", "0"] == 6
    assert found["pyddmq_lag_seconds", "billing", "orders", "0"] == 1.5
    assert found["pyddmq_lag_status", "billing", "orders", "0", "OK"] == 0
    assert found["pyddmq_lag_status", "billing", "orders", "1", "STOP"] == 2
    assert found["pyddmq_lag_group_status", "billing", "STOP"] == 2
    queue = (CLUSTER, "billing", "orders", "0")
    kafka = "kafka_consumergroup_group"
    assert found[f"{kafka}_offset", *queue] == 3
    assert found[f"{kafka}_lag", *queue] == 7
    assert found[f"{kafka}_lag_seconds", *queue] == 1.5
    assert found[f"{kafka}_lag_retention_ratio", *queue] == 12.5
    assert found[f"{kafka}_messages_lost", *queue] == 2
    assert found[f"{kafka}_max_lag", CLUSTER, "billing"] == 7
    assert found[f"{kafka}_sum_lag", CLUSTER, "billing"] == 12
    assert found[f"{kafka}_max_lag_seconds", CLUSTER, "billing"] == 1.5
    assert found[f"{kafka}_topic_sum_lag", CLUSTER, "billing", "orders"] == 12


def test_cause_and_forecast_stand_there_where_there_are_any() -> None:
    """For who alarms about them: why a queue is behind, and when it is caught up."""
    found = gauges(
        lag_queue(queue=0, cause="slow_consumer", velocity=2.5, catch_up_s=None),
        lag_queue(queue=1, cause=None, velocity=-4.0, catch_up_s=240.0),
    )
    assert found["pyddmq_lag_cause", "billing", "orders", "0", "slow_consumer"] == 1
    assert found["pyddmq_lag_velocity", "billing", "orders", "0"] == 2.5
    assert found["pyddmq_lag_catch_up_seconds", "billing", "orders", "1"] == 240
    assert ("pyddmq_lag_catch_up_seconds", "billing", "orders", "0") not in found
    assert [key for key in found if key[0] == "pyddmq_lag_cause"] == [
        ("pyddmq_lag_cause", "billing", "orders", "0", "slow_consumer")
    ]


def test_what_is_not_known_is_absent() -> None:
    """An autoscaler must not take it for 0."""
    found = gauges(
        lag_queue(status="UNKNOWN", lag=None, unfinished=None, time_lag_ms=None, time_lag_low_ms=None, committed=None)
    )
    assert not [key for key in found if key[0].endswith(("_lag", "_seconds", "_messages", "_offset"))]
    assert found["pyddmq_lag_status", "billing", "orders", "0", "UNKNOWN"] == 3
    bounded = gauges(lag_queue(time_lag_ms=None, time_lag_low_ms=4_000))
    assert bounded["pyddmq_lag_seconds", "billing", "orders", "0"] == 4


def test_partitions_are_those_of_users_topics() -> None:
    """Also where the node takes no samples."""
    none = lag_judgement([], enabled=False)
    found = {(name, *labels): value for name, labels, value in lag_gauges(none, busy_node().topic_list, CLUSTER)}
    assert found["kafka_partition_latest_offset", CLUSTER, "permits", "1"] == 1_006
    assert found["kafka_partition_earliest_offset", CLUSTER, "permits", "1"] == 5
    assert not [key for key in found if "%" in "".join(key)]


def test_partitions_that_are_left_out_are_counted() -> None:
    """Also where the node takes no samples."""
    [permits] = [topic for topic in busy_node().topic_list if not topic.system]
    ranges = [QueueRange(queue=number, min=0, max=9) for number in range(QUEUES_MAX + 3)]
    topics = [msgspec.structs.replace(permits, queues=ranges)]
    for is_enabled in (False, True):
        found = list(lag_gauges(lag_judgement([], enabled=is_enabled), topics, CLUSTER))
        assert sum(name == "kafka_partition_latest_offset" for name, *_ in found) == QUEUES_MAX
        assert ("pyddmq_lag_partitions_left_out", (), 3.0) in found


def test_queues_with_gauges_of_their_own_are_bounded_and_the_worst() -> None:
    """The sums are of all of them."""
    queues = [lag_queue(queue=number, lag=number) for number in range(QUEUES_MAX + 10)]
    found = gauges(*queues, lag_queue(queue=QUEUES_MAX + 10, lag=0, status="STOP"))
    shown = [key for key in found if key[0] == lag_metrics.MESSAGES]
    assert len(shown) == QUEUES_MAX
    assert (lag_metrics.MESSAGES, "billing", "orders", "0") not in found
    assert (lag_metrics.MESSAGES, "billing", "orders", f"{QUEUES_MAX + 10}") in found
    assert found[(lag_metrics.LEFT_OUT,)] == 11
    assert found[lag_metrics.SUM_LAG, CLUSTER, "billing"] == sum(range(QUEUES_MAX + 10))


@pytest.mark.parametrize(
    ("accept", "parser"),
    [
        ("", plain.text_string_to_metric_families),
        ("application/openmetrics-text", openmetrics.text_string_to_metric_families),
    ],
)
def test_text_is_read_by_prometheus_in_both_forms(accept: str, parser: Callable[[str], Iterable[Metric]]) -> None:
    """Names of groups are of others' making; each family comes once."""
    odd = 'bill"ing\\\n'
    answer = lag_judgement([lag_queue(odd, lag=7, time_lag_ms=1_500)])
    node = busy_node()
    text = run_now(lag_text(answer, node.topic_list, CLUSTER))
    whole, _ = Exposition(node, "asyncio").render(accept, text)
    families = list(parser(whole.decode()))
    assert len({each.name for each in families}) == len(families)
    found = {(each.name, *each.labels.values()): each.value for family in families for each in family.samples}
    assert found["pyddmq_lag_seconds", odd, "orders", "0"] == 1.5
    assert found["kafka_consumergroup_group_sum_lag", CLUSTER, odd] == 7
    assert found["pyddmq_lag_queues_left_out",] == 0
    assert "pyddmq_uptime_seconds" in {each.name for each in families}


def test_names_are_all_that_is_written() -> None:
    """So that no family is written twice, or left out."""
    queue = lag_queue(time_lag_ms=1, retention_ratio=1.0, cause="hot_queue", catch_up_s=1.0)
    assert {name for name, *_ in lag_gauges(lag_judgement([queue]), busy_node().topic_list, CLUSTER)} == LAG_NAMES
