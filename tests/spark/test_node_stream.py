"""`pyddmq_messages` from a running node, as a stream: nothing lost, nothing twice, and the group's lag shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lag.spark.sources.node import NodeClient, QueueOffsets
from lag.spark.sources.node_ranges import NodeOptions
from lag.spark.sources.node_stream import shared
from pyddmq import Fetcher, Producer
from tests.patient import until
from tests.running_node import RunningNode
from tests.spark.test_node_ranges import QIDS, YAML, expire, fill

pytestmark = pytest.mark.usefixtures("shipped")


def publish(node: RunningNode, first: int, count: int) -> None:
    """Send numbers to the queues in turn."""
    with Producer(node.producer) as producer:
        for number in range(first, first + count):
            producer.send("permits", b"%d" % number, partition_id=number % 2)


def lags(node: RunningNode, group: str = "spark") -> list[int]:
    """Return how far the group is behind in each queue, as every report has it."""
    with NodeClient(node.consumer) as client:
        return [each.end - each.committed for _, each in sorted(client.standings(group)["permits"].items())]


def stream(spark: Any, node: RunningNode, **options: Any) -> Any:
    """Return a stream of the group's messages."""
    given = {"node": node.consumer, "group": "spark", "topic": "permits", "patience": "2"}
    return spark.readStream.format("pyddmq_messages").options(**{**given, **options}).load()


def written(frame: Any, folder: Path, **trigger: Any) -> Any:
    """Start a query that writes numbers to files, with its checkpoint beside them."""
    numbers = frame.selectExpr("try_cast(cast(body as string) as bigint) as n")
    writer = numbers.writeStream.format("parquet").option("path", str(folder / "out"))
    return writer.option("checkpointLocation", str(folder / "check")).trigger(**trigger).start()


def numbers_of(spark: Any, folder: Path) -> list[int]:
    """Return what was written."""
    return sorted(row.n for row in spark.read.parquet(str(folder / "out")).collect())


def test_idle_query_shows_lag_0(spark: Any, tmp_path: Path) -> None:
    """What came is acked though no batch follows; also what comes after the query was idle; `latest` leaves out."""
    with RunningNode(YAML, tmp_path / "node") as node:
        publish(node, 0, 10)
        query = written(stream(spark, node), tmp_path, processingTime="50 milliseconds")
        try:
            until(lambda: lags(node) == [0, 0], "lag 0")
            publish(node, 10, 6)
            query.processAllAvailable()
            until(lambda: lags(node) == [0, 0], "lag 0")
            assert query.isActive
        finally:
            query.stop()
        assert numbers_of(spark, tmp_path) == list(range(16))
        publish(node, 16, 4)
        assert lags(node) == [2, 2]


def test_available_now_ends_with_lag_0_and_resumes(spark: Any, tmp_path: Path) -> None:
    """In batches of no more than asked; a second run has only what came since, whatever the group's position is."""
    with RunningNode(YAML, tmp_path / "node") as node:
        publish(node, 0, 50)
        frame = stream(spark, node, maxOffsetsPerTrigger="20", startingOffsets="earliest", commitGroup="tagged")
        query = written(frame, tmp_path, availableNow=True)
        assert query.awaitTermination(60)
        assert [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]] == [20, 20, 10]
        assert numbers_of(spark, tmp_path) == list(range(50))
        assert (lags(node), lags(node, "tagged")) == ([25, 25], [0, 0])

        publish(node, 50, 6)
        assert written(frame, tmp_path, availableNow=True).awaitTermination(60)
        assert numbers_of(spark, tmp_path) == list(range(56))
        assert lags(node, "tagged") == [0, 0]


def test_query_that_died_in_mid_batch_loses_and_repeats_nothing(spark: Any, tmp_path: Path) -> None:
    """Its unfinished batch is never acked; run again it has the same messages, and no other."""
    with RunningNode(YAML, tmp_path / "node") as node:
        publish(node, 0, 40)
        poison = str(tmp_path / "poison")
        Path(poison).touch()

        def passed(batches: Any) -> Any:
            for batch in batches:
                if Path(poison).exists() and b"30" in batch.column("body").to_pylist():
                    raise ValueError("the task is killed")
                yield batch

        frame = stream(spark, node, maxOffsetsPerTrigger="16", partitionMessages="6").select("body")
        frame = frame.mapInArrow(passed, "body binary")
        query = written(frame, tmp_path, availableNow=True)
        with pytest.raises(Exception, match="the task is killed"):
            query.awaitTermination(60)
        # Batch 0 is done, batch 1 has 16 to 31 and died.
        assert numbers_of(spark, tmp_path) == list(range(16))
        assert lags(node) == [12, 12]
        publish(node, 40, 4)
        Path(poison).unlink()

        assert written(frame, tmp_path, availableNow=True).awaitTermination(60)
        assert numbers_of(spark, tmp_path) == list(range(44))
        assert lags(node) == [0, 0]


def test_what_retention_took_ends_a_query_or_is_passed_over(spark: Any, tmp_path: Path) -> None:
    """A query that was away too long is told what it missed."""
    with RunningNode(YAML, tmp_path / "node") as node:
        publish(node, 0, 4)
        frame = stream(spark, node, commitGroup="none")
        assert written(frame, tmp_path, availableNow=True).awaitTermination(60)
        assert lags(node) == [2, 2]
        fill(node, 80)
        start = expire(node)
        query = written(frame, tmp_path, availableNow=True)
        with pytest.raises(Exception, match=f"begins at {start}: offsets 2 to {start - 1} are lost"):
            query.awaitTermination(60)
        frame = stream(spark, node, commitGroup="none", failOnDataLoss="false")
        query = written(frame, tmp_path, availableNow=True)
        assert query.awaitTermination(60)
        with NodeClient(node.consumer) as client:
            kept = sum(each.end - each.start for each in client.standings("spark")["permits"].values())
        assert sum(each["numInputRows"] for each in query.recentProgress) == kept > 0


def test_refused_acks_leave_the_query_alone(spark: Any, tmp_path: Path) -> None:
    """Where a fetcher owns the queues its position counts, and the query goes on."""
    with RunningNode(YAML, tmp_path / "node") as node, Fetcher(node.consumer, "spark") as fetcher:
        publish(node, 0, 4)
        assert {each.qid for each in fetcher.fetch()} >= set(QIDS)
        assert written(stream(spark, node), tmp_path, availableNow=True).awaitTermination(60)
        assert numbers_of(spark, tmp_path) == [0, 1, 2, 3]
        assert lags(node) == [2, 2]


class StartingNode:
    """A connection to a node that has been started anew: acks are refused until somebody waited for it."""

    def __init__(self) -> None:
        self.is_starting = True
        self.acked: list[Any] = []

    def __enter__(self) -> StartingNode:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def check(self, group: str, topics: Any) -> None:
        """It has all that is asked for."""

    def standings(self, group: str) -> dict[str, dict[str, QueueOffsets]]:
        """Wait for it."""
        self.is_starting = False
        return {"permits": {QIDS[0]: QueueOffsets(0, 0, 8)}}

    def ack(self, group: str, offsets: Any) -> bool:
        """Refuse while it starts."""
        self.acked += [] if self.is_starting else [offsets]
        return not self.is_starting


def test_ack_that_meets_a_starting_node_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once: an idle query, or one that ends, has no other one; it is made once."""
    from lag.spark.sources.node_stream import NodeStream

    node = StartingNode()
    monkeypatch.setattr(NodeOptions, "client", lambda _: node)
    query = NodeStream({"node": "h:1", "group": "spark"}, ("body",))
    end = {"permits": {QIDS[0]: 8}}
    for _ in range(2):
        assert query.latestOffset(end, query.getDefaultReadLimit()) == end
        assert node.acked == [end]


def test_stream_of_files_is_refused(spark: Any, tmp_path: Path) -> None:
    """With what is right."""
    frame = spark.readStream.format("pyddmq_messages").option("path", str(tmp_path)).load()
    with pytest.raises(Exception, match="a stream reads from a running node; use option 'node'"):
        written(frame, tmp_path, availableNow=True).awaitTermination(60)


def test_batch_is_shared_out_in_proportion() -> None:
    """Never more than asked, never more than there is, and all of a bound is used."""
    rooms = {("t", f"q_{number}"): count for number, count in enumerate((0, 1, 10, 89, 1000))}
    assert shared(rooms, None) == rooms
    for bound in (1, 2, 7, 100, 1099, 1100, 5000):
        found = shared(rooms, bound)
        assert sum(found.values()) == min(bound, 1100)
        assert all(0 <= found[queue] <= rooms[queue] for queue in rooms)
