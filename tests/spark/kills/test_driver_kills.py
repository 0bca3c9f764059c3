"""A stream from source to sink on a cluster of processes, whose executor and whose driver are killed in mid-batch."""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path
from typing import Any, Final

import pytest

from lag.spark.sources.node import NodeClient
from pyddmq import OutgoingMessage, Producer
from tests.conftest import need_module, need_program
from tests.patient import until
from tests.running_node import RunningNode
from tests.spark.kills.campaign import all_of
from tests.spark.kills.processes import Killed, children, job

YAML = """
topics: {permits: {queues: 2}, copies: {queues: 2}}
groups:
  - {group: spark, topics: [{topic: permits, actions: [LowLevel]}]}
  - {group: check, topics: [{topic: permits, actions: [LowLevel]}, {topic: copies, actions: [LowLevel]}]}
"""
MASTER: Final = "local-cluster[2,1,1024]"
"""Two workers of a core and a gigabyte each, as processes of their own."""
BATCH: Final = 3_000
"""Messages of a batch, each of which is a call of its own: a batch takes long enough to be met in the middle."""


def spark_home(folder: Path) -> str:
    """Return a folder of our own in place of Spark's: workers keep what executors write below it."""
    spark = need_module("pyspark", "pip install 'pyddmq[spark]'")
    folder.mkdir()
    for each in Path(str(spark.__file__)).parent.iterdir():
        if each.name != "work":
            (folder / each.name).symlink_to(each)
    return str(folder)


def executors(driver: Killed) -> list[int]:
    """Return the processes of a driver's executors."""
    return [
        pid
        for jvm in children(driver.pid)
        for pid in children(jvm)
        if b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    ]


def test_cluster_whose_processes_die_in_mid_batch_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """An executor in the middle of one batch, the driver in that of the next; the group's lag is that of whole ones."""
    with RunningNode(YAML, tmp_path / "node") as node, NodeClient(node.consumer) as client:
        with Producer(node.producer) as producer:
            for first in range(0, 3 * BATCH, 100):
                producer.send_batch(
                    [OutgoingMessage(topic="permits", body=b"%d" % number, partition_id=number % 2)
                     for number in range(first, first + 100)]
                )  # fmt: skip

        def ends(group: str, topic: str) -> tuple[int, int]:
            found = client.standings(group)[topic].values()
            return sum(each.committed for each in found), sum(each.end for each in found)

        given: dict[str, Any] = {
            "producer": node.producer, "consumer": node.consumer, "checkpoint": str(tmp_path / "check"), "once": True,
            "source": {"maxOffsetsPerTrigger": str(BATCH), "partitionMessages": "500"}, "sink": {"batchMessages": "1"},
        }  # fmt: skip
        query = job(tmp_path, {"copy": given, "master": MASTER}, {"SPARK_HOME": spark_home(tmp_path / "spark")})
        dice = random.Random(3)

        def reach(batch: int) -> None:
            aim = batch * BATCH + dice.randrange(200, BATCH // 2)
            until(lambda: ends("check", "copies")[1] >= aim or query.code is not None, f"batch {batch}")
            assert query.code is None, query.said()

        try:
            query.start()
            reach(0)
            found = executors(query)
            assert len(found) == 2
            os.kill(dice.choice(found), signal.SIGKILL)
            reach(1)
            query.kill()
            copied = ends("check", "copies")[1]
            assert BATCH < copied < 2 * BATCH, "it was killed in the middle of a batch"
            assert ends("spark", "permits") == (BATCH, 3 * BATCH)
            query.start()
            assert query.wait() == 0, query.said()
        finally:
            query.kill()
        bodies = all_of(client, "copies")
        assert len(bodies) == 3 * BATCH, "each is there once"
        assert set(bodies) == set(all_of(client, "permits"))
        assert ends("spark", "permits") == (3 * BATCH, 3 * BATCH)


@pytest.fixture(autouse=True)
def _java() -> None:
    need_program("java", "apt install openjdk-17-jre-headless")


pytestmark = pytest.mark.long
