"""The sink `pyddmq`: each row is stored once, however often its task runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lag.spark.sources.node import NodeClient
from lag.spark.sources.sink import name_of
from tests.patient import until
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 131072, maxMessageBytes: 16384}
topics: {slow: {queues: 2, maxTps: 12}, copies: {queues: 2}}
groups:
  - {group: copies, topics: [{topic: copies, actions: [LowLevel]}, {topic: slow, actions: [LowLevel]}]}
"""
pytestmark = pytest.mark.usefixtures("shipped")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    """Run a node."""
    with RunningNode(YAML, tmp_path / "node") as running:
        yield running


def stored(node: RunningNode, topic: str = "copies") -> list[dict[int, Any]]:
    """Return the messages of a topic, by field id."""
    found = []
    with NodeClient(node.consumer) as client:
        for qid, standing in client.standings("copies")[topic].items():
            if standing.end:
                found += client.fetch("copies", topic, qid, 0, 10_000).messages
    return found


def numbers(node: RunningNode, topic: str = "copies") -> list[int]:
    """Return the bodies of the messages of a topic."""
    return sorted(int(message[2]) for message in stored(node, topic))


class Lines:
    """A stream of a file into a topic whose rate ends a run without patience in the middle of its batch."""

    def __init__(self, spark: Any, node: RunningNode, folder: Path) -> None:
        self._spark = spark
        self._node = node
        self._folder = folder
        (folder / "in").mkdir()
        (folder / "in" / "lines.txt").write_text("".join(f"{number}\n" for number in range(40)))

    def run(self, *, partitions: int, patience: int) -> None:
        """Run the query from its checkpoint until the file is written."""
        self._spark.conf.set("spark.sql.files.maxPartitionBytes", "128m" if partitions == 1 else "30")
        frame = self._spark.readStream.format("text").load(str(self._folder / "in")).selectExpr("value as body")
        options = {"node": self._node.producer, "topic": "slow", "batchMessages": "5", "patience": str(patience)}
        writer = frame.writeStream.format("pyddmq").options(**options)
        writer = writer.option("checkpointLocation", str(self._folder / "check")).trigger(availableNow=True)
        try:
            assert writer.start().awaitTermination(240)
        finally:
            self._spark.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.mark.parametrize("begun", [1, 4])
def test_batch_in_other_partitions_is_refused_and_goes_on_in_its_own(
    spark: Any, node: RunningNode, tmp_path: Path, begun: int
) -> None:
    """As after a restart with another number of cores: it sends no row. Repeated in its own, each row is there once."""
    lines = Lines(spark, node, tmp_path)
    with pytest.raises(Exception, match="did not accept messages for 0 s"):
        lines.run(partitions=begun, patience=0)
    before = numbers(node, "slow")
    assert 0 < len(before) < 40
    with pytest.raises(Exception, match=r"batch 0 was begun with|batch 0 was begun by an earlier run"):
        lines.run(partitions=5 - begun, patience=0)
    # Tasks of the first run that Spark has not ended yet may still send: rows of its own partitions.
    assert set(before) <= set(numbers(node, "slow"))
    lines.run(partitions=begun, patience=60)
    assert numbers(node, "slow") == list(range(40))


def test_batch_write_under_a_used_id_stores_nothing(spark: Any, node: RunningNode) -> None:
    """The same rows are stored already; other ones, or other partitions, are an error."""

    def write(first: int, end: int, count: int) -> None:
        frame = spark.range(first, end, 1, count).selectExpr("'copies' as topic", "cast(id as string) as body")
        frame.write.format("pyddmq").options(node=node.producer, id="june").mode("append").save()

    write(0, 30, 2)
    write(0, 30, 2)
    for first, end, count in ((0, 30, 3), (0, 29, 2), (1, 31, 2)):
        with pytest.raises(Exception, match="stored before, with other rows or other partitions"):
            write(first, end, count)
    assert numbers(node) == list(range(30))


def test_batch_write_has_all_of_a_message_and_may_be_repeated(spark: Any, node: RunningNode) -> None:
    """Under an id it stores its rows once; without one each write is its own."""
    frame = spark.range(0, 30, 1, 2).selectExpr(
        "'copies' as topic", "concat('k', id) as key", "cast(id as string) as body", "'red' as tags",
        "map('n', cast(id as string)) as properties", "case when id = 7 then 50 end as delay_ms",
    )  # fmt: skip
    for _ in range(2):
        frame.write.format("pyddmq").options(node=node.producer, id="june").mode("append").save()
        until(lambda: len(stored(node)) >= 30, "the delayed message")
    found = stored(node)
    assert sorted(int(message[2]) for message in found) == list(range(30))
    for message in found:
        number = message[2]
        assert (message[1], message[3], message[5]) == (b"k" + number, b"red", {b"n": number})
    frame.drop("delay_ms").write.format("pyddmq").options(node=node.producer).mode("append").save()
    assert len(stored(node)) == 60


@pytest.mark.parametrize(
    ("columns", "options", "sentence"),
    [
        (["'1' as body"], {}, "a message needs a body and a topic"),
        (["'1' as body", "2 as n"], {"topic": "copies"}, "a message has no column 'n'"),
        (["1 as body"], {"topic": "copies"}, "column 'body' is binary, and the frame has int"),
        (["'1' as body"], {"topic": "copies", "mode": "overwrite"}, "the sink only appends messages"),
        (["'1' as body"], {"topic": "nowhere"}, r"refuses messages \(code 1[34]\)"),
        (["'1' as body", "cast(null as string) as topic"], {}, "a row without topic"),
        (["'1' as body", "repeat('x', 256) as tags"], {"topic": "copies"}, r"refuses messages \(code 11\)"),
    ],
)
def test_what_cannot_be_written_is_told(
    spark: Any, node: RunningNode, columns: list[str], options: dict[str, str], sentence: str
) -> None:
    """And nothing is stored."""
    frame = spark.range(0, 1, 1, 1).selectExpr(*columns)
    mode = options.get("mode", "append")
    with pytest.raises(Exception, match=sentence):
        frame.write.format("pyddmq").options(node=node.producer, **options).mode(mode).save()
    assert stored(node) == []


def test_names_are_of_their_parts_alone() -> None:
    """The same ones for the same task, others for any other; in the form that a node takes, with room for numbers."""
    names = {name_of("", "query", str(batch), str(partition)) for batch in range(50) for partition in range(50)}
    assert len(names) == 2_500
    assert name_of("", "query", "4", "9") in names
    assert name_of("a", "b") != name_of("ab")
    for name in names:
        assert len(name) == 20
        assert name.startswith("FE")
        assert (int(name[12:], 16) << 16) + (1 << 40) < 1 << 48
