"""A look at a cluster by a process of its own."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest

from conf.sections.kafka import KafkaClusterConfig
from tests.conftest import need_module
from upstream.calls import child_process
from upstream.kafka.link import Checkpoint, KafkaFailure, KafkaPartition
from upstream.kafka_client import cluster_inspection
from upstream.kafka_client.all_groups_process import SurveyProcess
from upstream.kafka_client.log_load import LoadOrder, LogLoader
from upstream.kafka_client.package import KafkaUnusable
from upstream.kafka_client.posting import Post


def _cluster(**librdkafka: object) -> KafkaClusterConfig:
    need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
    return KafkaClusterConfig.model_validate({"bootstrapServers": "127.0.0.1:9", "librdkafka": librdkafka})


def test_process_that_dies_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that asked lives, and says what became of it."""
    monkeypatch.setattr(cluster_inspection, "MODULE", "tests.unit.upstream.kafka_client.dying")
    facts = cluster_inspection.look_beside("main", _cluster(), ["t"], ["g"])
    assert "ended three times without an answer" in facts.trouble


def test_process_that_cannot_start_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the look, of the survey and of a load, whose caller waits for an answer."""

    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(child_process, "Pipe", refused)
    assert "ended three times without an answer" in cluster_inspection.look_beside("main", _cluster(), [], []).trouble
    with pytest.raises(KafkaFailure, match="did not start"):
        SurveyProcess("main", _cluster(), client_id="test")
    checkpoint = Checkpoint("cluster/topic", 1, 0, 1, 0)

    async def loaded() -> KafkaFailure | None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[KafkaFailure | None] = loop.create_future()
        order = LoadOrder("main", _cluster(), KafkaPartition("t", 0), "", checkpoint)
        LogLoader(order, lambda failure, _: ended.set_result(failure), Post(loop))
        return await ended

    assert "Too many open files" in str(asyncio.run(loaded()))


def test_setting_that_is_refused_is_told_by_the_process() -> None:
    """With librdkafka's words."""
    with pytest.raises(KafkaUnusable, match=r"kafka\.main"):
        cluster_inspection.look_beside("main", _cluster(**{"no.such.setting": 1}), ["t"], ["g"])


def test_cluster_that_cannot_be_reached_is_told_by_the_process() -> None:
    """As by a look in this one."""
    facts = cluster_inspection.look_beside("main", _cluster(), ["t"], ["g"])
    assert facts.trouble
    assert "ended" not in facts.trouble


class _Clients:
    """Clients of a cluster in memory, of which the first ones ask a broker that hangs."""

    def __init__(self, hangs: int, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made = 0
        self._hangs = hangs
        self.config, self.hide = SimpleNamespace(group_protocol="classic"), str
        monkeypatch.setattr(cluster_inspection, "_LATE_SECONDS", 0.0)
        monkeypatch.setattr(cluster_inspection, "_ANSWER_SECONDS", (0.01, 0.01, 0.01))

    def admin(self, _: str, error_cb: object) -> SimpleNamespace:
        """Make one."""
        self.made += 1
        number = self.made

        def answers(found: dict[Any, Any]) -> dict[Any, Future[Any]]:
            futures: dict[Any, Future[Any]] = {key: Future() for key in found}
            for key, each in futures.items() if number > self._hangs else ():
                each.set_result(found[key])
            return futures

        topic = SimpleNamespace(partitions=[], topic_id=None, authorized_operations=None)
        entry = SimpleNamespace(value="compact")
        return SimpleNamespace(
            list_topics=lambda timeout: SimpleNamespace(topics={"t": topic}, brokers={1: None}, cluster_id="c"),
            describe_topics=lambda *_, **__: answers({"t": topic}),
            describe_configs=lambda asked, **_: answers({each: {"cleanup.policy": entry} for each in asked}),
        )


@pytest.mark.parametrize("hangs", [0, 2])
def test_question_that_a_broker_does_not_answer_is_asked_by_another_client(
    hangs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So a node that starts beside a broker that hangs serves within seconds what others have."""
    need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
    clients: Any = _Clients(hangs, monkeypatch)
    facts = cluster_inspection.look_at(clients, ["t"], [])
    assert (facts.trouble, facts.topics["t"].settings) == ("", {"cleanup.policy": "compact"})
    assert (facts.settings, clients.made) == ({"cleanup.policy": "compact"}, hangs + 1)


def test_cluster_that_answers_nothing_of_its_topics_is_in_trouble(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are not taken for missing ones."""
    need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
    clients: Any = _Clients(100, monkeypatch)
    assert "has not answered" in cluster_inspection.look_at(clients, ["t"], []).trouble
