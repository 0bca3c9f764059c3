"""Consumption lag of all groups of a real Kafka, beside what Kafka's own tool says of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.servers.maven import Jars, JarsMissing
from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from conf.sections.kafka import KafkaClusterConfig
from lag.journal.reader import JournalQuery, JournalReader, QueueRow
from lag.journal.writer import FOLDER
from proxy.cli.app import run
from proxy.cli.demo.demo_lag_command import SMALL_DATA
from pyddmq import Consumer as NodeConsumer
from tests.conftest import need, need_module
from tests.kafka.nodes import NodeProcess
from tests.kafka.server import QUICK_JVM as KAFKA_JVM
from tests.kafka.server import VERSION, KafkaServer
from tests.kafka.topics import SECONDS, delete_records, make_topic, plain_producer, send_plainly
from tests.patient import until
from upstream.kafka.link import KafkaFailure
from upstream.kafka_client.all_groups_process import SurveyProcess

pytestmark = pytest.mark.long

TOOLS = Jars(f"the tools of Kafka {VERSION}", Path(__file__).parent / "tools" / "pom.xml", f"kafka-tools-{VERSION}")
Row = tuple[str, str, int, int | None, int | None, int | None]
"""Group, topic, partition, committed offset, end and lag."""


@pytest.fixture(scope="session")
def tools() -> str:
    """Jars of Kafka's command line."""
    try:
        return str(TOOLS.fetch())
    except JarsMissing as error:
        need(False, f"{error}, so it")
        raise


def described(address: str, tools: str, prefix: str) -> list[Row]:
    """What kafka-consumer-groups says of the groups with a prefix."""
    command = ["java", *KAFKA_JVM, "-cp", f"{tools}/*", "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"]
    command += ["--bootstrap-server", address, "--describe", "--all-groups"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240).stdout
    found: list[Row] = []
    for line in said.splitlines():
        words = line.split()
        if len(words) > 5 and words[0].startswith(prefix):
            numbers = [None if each == "-" else int(each) for each in words[3:6]]
            found.append((words[0], words[1], int(words[2]), numbers[0], numbers[1], numbers[2]))
    return sorted(found)


def recorded(journal: Path) -> list[QueueRow]:
    """All samples."""
    reader = JournalReader(RealDisk(read_only=True), f"{journal}/{FOLDER}")
    return [each for each in reader.read(JournalQuery()) if isinstance(each, QueueRow)]


def rows_of(journal: Path, prefix: str) -> list[Row]:
    """The newest sample of each row, as the tool has it."""
    newest = {each.key: each.sample for each in recorded(journal) if each.key.group.startswith(prefix)}
    return sorted(
        (
            key.group,
            key.topic,
            key.queue,
            sample.committed,
            sample.end,
            None if sample.committed is None or sample.end is None else sample.end - sample.committed,
        )
        for key, sample in newest.items()
    )


@contextmanager
def member(address: str, group: str, topic: str, protocol: str, finished: int) -> Iterator[None]:
    """Have a plain consumer in its group that has finished so many."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([topic])
    try:
        left = finished
        while left:
            message: Any = consumer.poll(SECONDS)
            assert message is not None
            if message.error() is None:
                consumer.commit(message=message, asynchronous=False)
                left -= 1
        until(lambda: consumer.poll(0.01) is None or consumer.assignment(), "an assignment")
        yield
    finally:
        consumer.close()


def commit_plainly(address: str, group: str, offsets: list[TopicPartition]) -> None:
    """Commit without a member, as a program with partitions of its own choice does."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def test_figures_are_those_of_kafkas_tool(
    address: str, topic: Callable[..., str], tools: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Row by row: both kinds of groups, without members, never committed, an open transaction, deleted records."""
    prefix = f"lag-{uuid4().hex[:8]}"
    name, other = topic(4), topic(2)
    send_plainly(address, name, [{"value": b"%d" % each, "partition": each % 4} for each in range(400)])
    send_plainly(address, other, [{"value": b"x", "partition": 0} for _ in range(7)])
    producer = plain_producer(address, **{"transactional.id": prefix})
    producer.init_transactions(SECONDS)
    producer.begin_transaction()
    producer.produce(other, value=b"open", partition=1)
    producer.flush(SECONDS)
    commit_plainly(address, f"{prefix}-alone", [TopicPartition(other, 0, 7), TopicPartition(other, 1, 0)])
    commit_plainly(address, f"{prefix}-lost", [TopicPartition(name, 3, 10)])
    delete_records(address, name, 3, 40)
    with (
        member(address, f"{prefix}-classic", name, "classic", 30),
        member(address, f"{prefix}-new", name, "consumer", 50),
        member(address, f"{prefix}-fresh", other, "classic", 0),
    ):
        assert run(["lag", "record", "--kafka", address, "--journal", str(tmp_path), "--once", "--json"]) == 0
        said = described(address, tools, prefix)
    assert {each[0] for each in said} == {f"{prefix}-{each}" for each in ("alone", "lost", "classic", "new", "fresh")}
    assert (f"{prefix}-alone", other, 1, 0, 1, 1) in said, "what is open counts"
    assert any(each[3] is None for each in said), "a member that has committed nothing"
    assert rows_of(tmp_path, prefix) == said
    samples = {(each.key.group, each.key.queue): each.sample for each in recorded(tmp_path)}
    lost = samples[f"{prefix}-lost", 3]
    # What is gone is no lag that anybody can work off: the rules count it as lost, and the journal has both.
    assert (lost.start, lost.committed, lost.end) == (40, 10, 100)
    behind = [each for (group, _), each in samples.items() if group == f"{prefix}-new" and each.committed is not None]
    assert behind
    for sample in behind:
        assert sample.holders == 1
        assert sample.committed_ms is not None
        assert sample.end_ms is not None
        assert 0 <= sample.time_ms - sample.committed_ms < 3_600_000
    producer.abort_transaction(SECONDS)


def test_recorded_lag_is_read_by_all_that_read_a_nodes(
    address: str, topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`lag`, `lag check`, `lag slo`, `lag export` and the report by Spark; a node's own of its group says the same."""
    name, group = topic(2), f"lagging-{uuid4().hex[:8]}"
    send_plainly(address, name, [{"key": b"k%d" % each, "value": b"v", "partition": each % 2} for each in range(60)])
    node = NodeProcess(tmp_path, "node", address=address, topic=name, group=group, more="lag: {every: 1s}\n")
    journal = tmp_path / "recorded"
    command = [sys.executable, "-m", "pyddmq", "lag", "record", "--kafka", address, "--journal", str(journal)]
    recorder = subprocess.Popen([*command, "--every", "500ms", "--group", group], stdout=subprocess.DEVNULL)
    try:
        with NodeConsumer(node.consumers, group, batch_size=16, timeout_ms=10_000) as consumer:
            done = 0
            while done < 20:
                for message in consumer.pull(patience_ms=500):
                    consumer.ack(message)
                    done += 1
                consumer.flush()

        def newest() -> list[QueueRow]:
            return [each for each in recorded(journal) if each.key.group == group] if journal.exists() else []

        def left() -> int:
            rows = newest()
            samples = {each.key.queue: each.sample for each in rows}
            return sum((each.end or 0) - (each.committed or 0) - each.finished for each in samples.values())

        until(lambda: len(newest()) >= 12 and left() == 60 - done, "what the node has committed")

        def of_node() -> dict[str, Any]:
            capsys.readouterr()
            assert run(["lag", group, "--admin", node.admin, "--json"]) == 0
            return dict(json.loads(capsys.readouterr().out))

        until(lambda: sum(each["unfinished"] or 0 for each in of_node()["queues"]) == 60 - done, "the node's figures")
        until(lambda: all((each["samples"] or 0) >= 3 for each in of_node()["queues"]), "samples of the node")
        ours = of_node()
        assert run(["lag", group, "--journal", str(journal), "--json"]) == 0
        theirs = json.loads(capsys.readouterr().out)

        def figures(answer: dict[str, Any]) -> list[tuple[Any, ...]]:
            names = ("topic", "queue", "committed", "end", "lag", "unfinished")
            return [tuple(each[name] for name in names) for each in answer["queues"]]

        assert figures(theirs) == figures(ours)
        assert len(figures(ours)) == 2
        assert all(each["timeLagMs"] for each in theirs["queues"] if each["lag"])
        check = ["lag", "check", "--group", group, "--journal", str(journal)]
        until(lambda: run([*check, "--max-lag", "1000"]) in (0, 1), "enough samples for a judgement")
        assert run([*check, "--max-lag", "1"]) == 2
        assert f"{group}: {name}" in capsys.readouterr().out
        assert run(["lag", "slo", "--journal", str(journal), "--group", group, "--coverage", "0", "--json"]) == 0
        assert len(json.loads(capsys.readouterr().out)["kept"]) == 2
    finally:
        recorder.terminate()
        recorder.wait(60)
        node.kill()
    need_module("pyspark", "pip install 'pyddmq[spark]'")
    assert run(["lag", "export", "--journal", str(journal), "--to", str(tmp_path / "exported")]) == 0
    expected = {each["queue"]: (each["committed"], each["end"], each["unfinished"]) for each in ours["queues"]}
    reported, exported = judged_by_spark(
        [f"{journal}/{FOLDER}", f"{node.data}/{FOLDER}"], str(tmp_path / "exported"), group, tmp_path
    )
    for figures_told in reported.values():
        assert figures_told == expected
    assert set(reported) == {"lag-record", "node"}
    assert exported == {queue: (committed, end) for queue, (committed, end, _) in expected.items()}


def judged_by_spark(
    journals: list[str], exported: str, group: str, folder: Path
) -> tuple[dict[str, dict[int, tuple[int, int, int]]], dict[int, tuple[int, int]]]:
    """What a report over journals says of a group's queues, by who recorded; and the newest exported samples."""
    from lag.report.options import Input, ReportOptions, ReportWindow
    from lag.rules.limits import LagLimits
    from lag.spark.jobs.inputs import samples
    from lag.spark.jobs.report import make_report
    from lag.spark.session import QUICK_JVM, SessionOptions, session
    from lag.spark.shipping import ship

    now_ms = SystemClock().wall_ms()
    window = ReportWindow(from_ms=now_ms - 3_600_000, to_ms=now_ms)
    options = SessionOptions(
        master="local[2]",
        cores=2,
        ui=False,
        log_file=str(folder / "spark.log"),
        java_options=QUICK_JVM,
        settings=SMALL_DATA,
    )
    spark = session(options)
    try:
        ship(spark)
        given = Input(journals=journals, groups=frozenset({group}))
        report = make_report(
            spark, ReportOptions(given=given, window=window, limits=LagLimits(), compared=False, made_ms=now_ms)
        )
        reported: dict[str, dict[int, Any]] = {}
        for each in (queue for one in report.groups for queue in one.queues):
            reported.setdefault(each.node, {})[each.queue] = (each.committed, each.end, each.unfinished)
        newest: dict[int, Any] = {}
        found = samples(spark, Input(exported=[exported]), window.from_ms, window.to_ms)
        for row in found.orderBy("time_ms").select("queue", "committed", "end").collect():
            newest[row.queue] = (row.committed, row.end)
    finally:
        spark.stop()
    return reported, newest


def test_process_that_asks_may_die(address: str) -> None:
    """Librdkafka ends it where a connection breaks at the wrong moment: one question is lost, and no more."""
    config = KafkaClusterConfig.model_validate({"bootstrapServers": address})
    survey = SurveyProcess("main", config, client_id="test")
    try:
        assert survey.cluster_id()
        first = survey.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        with pytest.raises(KafkaFailure, match="has ended, and is started again"):
            survey.group_names()
        assert survey.group_names().failure is None
        assert survey.pid not in (None, first)
    finally:
        survey.close()


def test_recording_outlives_the_cluster(killable: KafkaServer, tmp_path: Path) -> None:
    """Killed and started again: what was known is not known meanwhile, and known again."""
    address, journal = killable.address, tmp_path / "recorded"
    make_topic(address, "recorded", 1, {})
    send_plainly(address, "recorded", [{"value": b"v"}])
    commit_plainly(address, "g-recorded", [TopicPartition("recorded", 0, 0)])
    command = [sys.executable, "-m", "pyddmq", "lag", "record", "--kafka", address, "--journal", str(journal)]
    command += ["--group", "g-recorded", "--every", "200ms"]
    recorder = subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def ends() -> list[int | None]:
        return [each.sample.end for each in recorded(journal)] if journal.exists() else []

    try:
        until(lambda: ends() and ends()[-1] == 1, "figures")
        killable.kill()
        until(lambda: ends()[-1] is None, "that nothing is known")
        killable.start()
        until(lambda: ends()[-1] == 1, "figures again")
        assert recorder.poll() is None
    finally:
        recorder.terminate()
        recorder.wait(60)


def test_cluster_that_is_gone_is_not_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence and an exit code, and no journal."""
    assert run(["lag", "record", "--kafka", "127.0.0.1:9", "--journal", str(tmp_path / "j"), "--once"]) == 4
    assert "127.0.0.1:9 does not respond" in capsys.readouterr().err
    assert not (tmp_path / "j").exists()
