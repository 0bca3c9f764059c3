"""`pyddmq store handover --to kafka` with a real Kafka: what waited in a store is delivered by a node, once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from pyddmq import LocalState, TransactionMessage, TransactionProducer
from tests.kafka.nodes import NodeProcess
from tests.kafka.test_waiting import Seen
from tests.kafka.topics import make_topic, topic_names
from tests.patient import until
from tests.unit.proxy.cli.test_kafka_handover import make_store
from upstream.kafka.waiting.topics import ANSWER_SETTINGS, TOPIC_SETTINGS

pytestmark = pytest.mark.long

_CONFIG = """
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: n, drainSeconds: 5}}
kafka:
  main:
    bootstrapServers: "{address}"
    waiting: {{topic: {waiting}, answersTopic: {answers}, partitions: 4}}
topics:
  orders: {{brokerCluster: main}}
  events: {{brokerCluster: main}}
"""


class Commits:
    """Commits what it is asked about."""

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState:
        """Run one; none is sent here."""
        raise AssertionError("only checks are answered")

    def check(self, message: TransactionMessage) -> LocalState:
        """Say what became of one."""
        return LocalState.COMMIT


def test_waiting_messages_of_a_store_are_delivered_by_kafka_once(
    address: str, topic: Callable[..., str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Timers, a loop, a level and halves; a second run finds them all there."""
    ending = topic()[-20:]
    waiting, answers = f"__w-{ending}", f"__a-{ending}"
    make_store(tmp_path / "store")
    file = tmp_path / "node.yaml"
    text = _CONFIG.format(data=tmp_path / "n", address=address, waiting=waiting, answers=answers)
    file.write_text(text)
    command = ["store", "handover", str(tmp_path / "store"), "--to", "kafka", "--config", str(file), "--json"]

    def counts(*options: str, code: ExitCode = ExitCode.OK) -> dict[str, int]:
        capsys.readouterr()
        assert run([*command, *options]) == code
        return {each["kind"]: each["count"] for each in json.loads(capsys.readouterr().out)["points"]}

    assert run(command) == ExitCode.REFUSED
    assert "kafka-topics.sh" in capsys.readouterr().err
    make_topic(address, waiting, 4, TOPIC_SETTINGS)
    make_topic(address, answers, 1, ANSWER_SETTINGS)
    for name in ("orders", "events"):
        if name not in topic_names(address):
            make_topic(address, name, 2, {})
    assert counts("--dry-run") == {"to_copy": 16, "not_in_kafka": 1}
    assert counts() == {"copied": 16, "not_in_kafka": 1}
    assert counts() == {"already_there": 16, "not_in_kafka": 1}
    orders, events = Seen(address, "orders"), Seen(address, "events")
    node = NodeProcess(tmp_path, "n", text=text)
    try:
        with TransactionProducer(node.producers, "shop", Commits()):
            until(lambda: orders.poll() >= 16, "timers, three of a loop, and a half")
        until(lambda: events.poll() >= 1, "the level")
        assert {body: len(moments) for body, moments in orders.moments.items()} == {
            **{f"timer{number}": 1 for number in range(12)}, "loop": 3, "half": 1,
        }  # fmt: skip
        assert events.moments.keys() == {"level"}
        assert counts() == {"already_there": 16, "not_in_kafka": 1}
    finally:
        orders.close()
        events.close()
        node.kill()
