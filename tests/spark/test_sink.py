"""The sink `pyddmq`: each row is stored once, however often its task runs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lag.spark.sources.node import NodeClient
from lag.spark.sources.sink import name_of
from pyddmq import Producer
from tests.patient import until
from tests.running_node import RunningNode

YAML = """
node: {segmentBytes: 131072, maxMessageBytes: 16384}
topics: {permits: {queues: 2}, copies: {queues: 2}}
groups:
  - {group: permits, topics: [{topic: permits, actions: [LowLevel]}]}
  - {group: copies, topics: [{topic: copies, actions: [LowLevel]}]}
"""
pytestmark = pytest.mark.usefixtures("shipped")


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RunningNode]:
    """Run a node."""
    with RunningNode(YAML, tmp_path / "node") as running:
        yield running


def stored(node: RunningNode) -> list[dict[int, Any]]:
    """Return what topic copies has, by field id."""
    found = []
    with NodeClient(node.consumer) as client:
        for qid, standing in client.standings("copies")["copies"].items():
            if standing.end:
                found += client.fetch("copies", "copies", qid, 0, 10_000).messages
    return found


def numbers(node: RunningNode) -> list[int]:
    """Return the bodies of what topic copies has."""
    return sorted(int(message[2]) for message in stored(node))


def test_query_that_died_in_mid_task_stores_nothing_twice(spark: Any, node: RunningNode, tmp_path: Path) -> None:
    """A task that had sent half of its rows sends them again under the same numbers."""
    with Producer(node.producer) as producer:
        for number in range(40):
            producer.send("permits", b"%d" % number, partition_id=number % 2)
    poison = str(tmp_path / "poison")
    Path(poison).touch()

    def spoiled(batches: Any) -> Any:
        import pyarrow

        for batch in batches:
            # The node refuses tags as long as these: two calls are stored, then the task dies.
            tags = ["x" * 256 if place > 11 and Path(poison).exists() else "t" for place in range(batch.num_rows)]
            yield pyarrow.record_batch([batch.column("body"), pyarrow.array(tags)], names=["body", "tags"])

    source = {"node": node.consumer, "group": "permits", "topic": "permits"}
    frame = spark.readStream.format("pyddmq_messages").options(**source).load().select("body")
    frame = frame.mapInArrow(spoiled, "body binary, tags string")

    def started() -> Any:
        writer = frame.writeStream.format("pyddmq").option("node", node.producer).option("topic", "copies")
        writer = writer.option("batchMessages", "5").option("checkpointLocation", str(tmp_path / "check"))
        return writer.trigger(availableNow=True).start()

    with pytest.raises(Exception, match="refuses messages"):
        started().awaitTermination(60)
    assert 0 < len(stored(node)) < 40
    Path(poison).unlink()
    assert started().awaitTermination(60)
    assert numbers(node) == list(range(40))


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
        (["'1' as body"], {}, "a message has a body and a topic"),
        (["'1' as body", "2 as n"], {"topic": "copies"}, "there is no column 'n' in a message"),
        (["1 as body"], {"topic": "copies"}, "column 'body' is binary, and the frame has int"),
        (["'1' as body"], {"topic": "copies", "mode": "overwrite"}, "messages are only ever added"),
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
