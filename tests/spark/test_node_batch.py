"""`pyddmq_messages` from a running node, as a batch: what it has is read, what it lacks is told."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from broker.runtime.disk import RealDisk
from broker.runtime.file_writes import at_once
from pyddmq import Fetcher, Producer
from tests.insides import opened_of
from tests.running_node import RunningNode
from tests.spark.test_node_ranges import QIDS, YAML

COUNT = 200
pytestmark = pytest.mark.usefixtures("shipped")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """Run a node with 100 messages in each of two queues, and a pause in the middle of them."""
    with RunningNode(YAML, tmp_path_factory.mktemp("node")) as running:
        with Producer(running.producer) as producer:
            for number in range(COUNT):
                if number == COUNT // 2:
                    time.sleep(0.01)
                producer.send(
                    "permits",
                    b"body-%d" % number,
                    key=f"k{number % 7}",
                    tags="odd" if number // 2 % 2 else "even",
                    properties={"n": str(number), "city": "Zürich"},
                    partition_id=number % 2,
                )
        yield running


def reading(spark: Any, running: RunningNode, **options: Any) -> Any:
    """Return a reader of the group's messages."""
    given = {"node": running.consumer, "group": "spark", "topic": "permits", "patience": "1"}
    return spark.read.format("pyddmq_messages").options(**{**given, **options})


def test_messages_are_those_of_the_node(spark: Any, node: RunningNode) -> None:
    """Each once, in each of its columns, whatever the partitions; nobody's position moves."""
    for size in ("60", "100000"):
        frame = reading(spark, node, partitionMessages=size).load().orderBy("queue", "offset")
        rows = frame.collect()
        assert [(row.queue, row.offset) for row in rows] == [(q, o) for q in (0, 1) for o in range(100)]
        for row in rows:
            number = row.offset * 2 + row.queue
            assert (row.topic, bytes(row.body), row["keys"]) == ("permits", b"body-%d" % number, f"k{number % 7}")
            assert row.properties == {"n": str(number), "city": "Zürich"}
            assert row.tags == ("odd" if number // 2 % 2 else "even")
            assert row.stored_ms >= row.born_ms > 1_700_000_000_000
            assert (row.id, row.attempts, row.size) == (None, None, None)
    assert reading(spark, node, startingOffsets="committed").load().count() == COUNT


def test_ranges_are_cut_by_options_and_filters(spark: Any, node: RunningNode) -> None:
    """By queue, offset, time and tag; pushed down or not; a count of few columns."""
    rows = reading(spark, node).load().orderBy("queue", "offset").collect()
    middle = rows[50].stored_ms
    later = sum(row.stored_ms >= middle for row in rows)
    assert 0 < later < COUNT
    for pushdown in ("true", "false"):
        frame = reading(spark, node, pushdown=pushdown).load()
        assert frame.where("queue = 1 and offset >= 90").count() == 10
        assert frame.where(f"stored_ms >= {middle}").count() == later
    assert reading(spark, node, since=str(middle)).load().count() == later
    assert reading(spark, node, until=str(middle)).load().count() == COUNT - later
    assert reading(spark, node, queue="1", startingOffsets="latest").load().count() == 0
    assert reading(spark, node, group="tagged").load().select("tags").distinct().collect()[0].tags == "odd"
    assert reading(spark, node, group="tagged", since=str(middle)).load().count() == later // 2
    narrow = reading(spark, node).schema("queue bigint, `keys` string").load()
    assert narrow.groupBy("keys").count().count() == 7


def test_group_of_many_topics_begins_at_its_commits(spark: Any, node: RunningNode) -> None:
    """Without a topic all of them; `committed` leaves out what was acked."""
    with Fetcher(node.consumer, "tagged", consumer_id="once") as fetcher:
        fetcher.fetch()
        assert fetcher.ack_positions({("permits", QIDS[0]): 98})
    given = {"node": node.consumer, "group": "tagged", "startingOffsets": "committed"}
    frame = spark.read.format("pyddmq_messages").options(**given).load()
    assert frame.where("queue = 0").count() == 1
    given = {"node": node.consumer, "group": "spark"}
    assert spark.read.format("pyddmq_messages").options(**given).load().count() == COUNT


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"group": "none"}, "no group 'none' is configured on this node.*code 1"),
        ({"group": "pulled"}, "group 'pulled' is not low level; write `actions: .LowLevel.` for its topics.*code 11"),
        ({"topic": "orders"}, "group 'spark' does not subscribe to 'orders' on .*; it has empty, permits"),
        ({"queue": "0,7"}, "option 'queue' has 7, which no topic of group 'spark' has"),
        ({"cluster": "other"}, "the node is not of the cluster"),
        ({"node": "127.0.0.1:1", "patience": "0"}, "no answer from 127.0.0.1:1: .*connection refused"),
        ({"node": "nowhere"}, "option 'node' is 'nowhere'; write host:port"),
        ({"path": "/tmp"}, "options 'node' and 'path' exclude each other"),
        ({"startingOffsets": "first"}, "use one of earliest, latest, committed"),
    ],
)
def test_what_cannot_be_read_is_told(spark: Any, node: RunningNode, options: dict[str, str], sentence: str) -> None:
    """By the driver, before any task runs."""
    with pytest.raises(Exception, match=sentence):
        reading(spark, node, **options).load().count()


def test_paused_group_is_told_and_not_waited_for_without_end(spark: Any, node: RunningNode) -> None:
    """It gives nothing to anybody, however long one asks."""

    def paused() -> None:
        at_once(RealDisk(), opened_of(node.node).pauses.pausing("spark", None, who="a test"))
        node.node.in_force.groups["spark"].apply_pauses()

    def resumed() -> None:
        at_once(RealDisk(), opened_of(node.node).pauses.resuming("spark", None))
        node.node.in_force.groups["spark"].apply_pauses()

    node.call(paused)
    try:
        with pytest.raises(Exception, match=r"returns nothing from offset 0.*group 'spark' is paused"):
            reading(spark, node, queue="0", patience="0").load().count()
    finally:
        node.call(resumed)
