"""`watch` over real journals: alarms as the node has them, each once, also when Spark gives a batch again."""

from __future__ import annotations

import json
import socket
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from lag.alarms.model import AlarmRule, alarm_id
from lag.alarms.rounds import AlarmPolicy
from lag.spark.sources.node import NodeClient
from tests.patient import until
from tests.running_node import RunningNode
from tests.spark.test_journal_stream import START_MS, Node

YAML = """
node: {segmentBytes: 131072, maxMessageBytes: 16384, brokerCluster: c, brokerName: n}
lag:
  every: 1s
  alarms:
    topic: lag-alarms
    rules: [{statuses: [INCOMPLETE], closeAfter: 0s, sinks: [file, topic]}]
topics: {permits: {queues: 2}, lag-alarms: {queues: 1}}
groups:
  - {group: permits, topics: [{topic: permits}]}
  - {group: alarms, topics: [{topic: lag-alarms, actions: [LowLevel]}]}
"""


def lines_of(file: Path) -> list[dict[str, Any]]:
    """Return what stands in a file of alarms; nothing, while there is none."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


class Receiver:
    """A webhook on the loopback: refuses the first post, and keeps the keys of the others."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self.refused = 0
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                assert self.headers["Idempotency-Key"] == event["key"]
                if receiver.refused:
                    receiver.keys.append(event["key"])
                self.send_response(200 if receiver.refused else 503)
                receiver.refused += not receiver.refused
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/lag"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Serve."""
    made = Receiver()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.mark.usefixtures("shipped")
def test_batch_that_spark_gives_again_tells_nothing_twice(spark: Any, tmp_path: Path) -> None:
    """The kill came after the alarms were written and before Spark noted the batch."""
    from lag.spark.jobs.watch import Places, WatchOptions, watch

    node = Node(tmp_path / "lag")
    node.rounds(8)
    rule = AlarmRule(statuses=frozenset({"INCOMPLETE", "SILENT"}), close_after_ms=0)
    options = WatchOptions(
        journals=[str(tmp_path / "lag")],
        checkpoint=str(tmp_path / "checkpoint"),
        places=Places(file=str(tmp_path / "alarms.jsonl")),
        policy=AlarmPolicy(rules=(rule,)),
        once=True,
    )

    def told() -> list[tuple[str, str, str]]:
        return [(each["status"], each["event"], each["id"]) for each in lines_of(tmp_path / "alarms.jsonl")]

    watch(spark, options, now_ms=lambda: START_MS + 80_000)
    first = told()
    assert ("INCOMPLETE", "opened", alarm_id("c", "g", "INCOMPLETE", START_MS)) in first
    for commit in (tmp_path / "checkpoint" / "spark" / "commits").iterdir():
        commit.unlink()
    watch(spark, options, now_ms=lambda: START_MS + 80_000)
    assert told() == first
    node.rounds(2)
    watch(spark, options, now_ms=lambda: START_MS + 900_000)
    assert told()[len(first) :] == [("SILENT", "opened", alarm_id("c", "node n", "SILENT", START_MS + 150_000))]


@pytest.mark.usefixtures("spark", "shipped")
def test_node_and_watch_tell_one_alarm_once_in_all_places(
    tmp_path: Path, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program beside a running node: what the node sent to the topic is not sent again; all ids are the same.

    It leaves no connection open: Spark keeps what takes batches for longer than the watch.
    """
    from lag.spark.jobs.program import main

    opened: list[socket.socket] = []
    connect = socket.create_connection

    def kept(*arguments: Any) -> socket.socket:
        opened.append(connect(*arguments))
        return opened[-1]

    data, file = tmp_path / "node", tmp_path / "alarms.jsonl"
    theirs = data / "pyddmq" / "lag-alarms" / "alarms.jsonl"
    with RunningNode(YAML, data) as node:
        until(lambda: sum(each["event"] == "closed" for each in lines_of(theirs)) >= 2, "the node's alarms")
        words = ["watch", "--journal", str(data / "pyddmq" / "lag"), "--statuses", "INCOMPLETE", "--close-after", "0"]
        words += ["--checkpoint", str(tmp_path / "checkpoint"), "--file", str(file), "--once", "--silence", "86400"]
        places = ["--topic", "lag-alarms", "--node", node.producer, "--webhook", receiver.url]
        with monkeypatch.context() as patched:
            patched.setattr("lag.spark.sources.node.socket.create_connection", kept)
            assert main([*words, *places]) == 0
        # Webhooks are posted through `create_connection` too, each over one of its own.
        assert len(opened) > receiver.refused + len(receiver.keys), "the topic was sent over one of them"
        assert [each for each in opened if each.fileno() != -1] == []
        events = lines_of(file)
        keys = [each["key"] for each in events]
        assert {each["event"] for each in events} == {"opened", "closed"}
        assert {each["key"] for each in lines_of(theirs)} <= set(keys)
        assert len(keys) == len(set(keys))
        assert receiver.refused == 1
        assert receiver.keys == keys
        with NodeClient(node.consumer) as client:
            [(qid, standing)] = client.standings("alarms")["lag-alarms"].items()
            sent = client.fetch("alarms", "lag-alarms", qid, 0, standing.end + 1).messages
        assert Counter(json.loads(each[2])["key"] for each in sent) == Counter(keys)
        assert main([*words, "--topic", "nowhere", "--node", node.producer]) == 0, "nothing new is to be told"


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        ([], "alarms go somewhere: give --file, --topic with --node, or --webhook"),
        (["--topic", "t"], "a topic is one of a node: give both --topic NAME and --node HOST:PORT"),
        (["--topic", "t", "--node", "here"], "--node is 'here': write host:port, the node's producer port"),
        (["--webhook", "ftp://x"], "'ftp://x' is no address; write one such as https://"),
    ],
)
def test_places_that_are_none_are_refused(places: list[str], sentence: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Before Spark is started, with what would be right."""
    pytest.importorskip("pyspark")
    from lag.spark.jobs.program import main

    assert main(["watch", "--journal", "j", "--checkpoint", "c", *places]) == 2
    assert f"pyddmq lag watch: {sentence}" in capsys.readouterr().err
