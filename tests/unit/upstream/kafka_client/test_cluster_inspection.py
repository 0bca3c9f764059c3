"""A look at a cluster by a process of its own."""

from __future__ import annotations

import pytest

from conf.sections.kafka import KafkaClusterConfig
from tests.conftest import need_module
from upstream.kafka_client import cluster_inspection
from upstream.kafka_client.package import KafkaUnusable


def _cluster(**librdkafka: object) -> KafkaClusterConfig:
    need_module("confluent_kafka", "pip install 'pyddmq[kafka]'")
    return KafkaClusterConfig.model_validate({"bootstrapServers": "127.0.0.1:9", "librdkafka": librdkafka})


def test_process_that_dies_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command that asked lives, and says what became of it."""
    monkeypatch.setattr(cluster_inspection, "MODULE", "tests.unit.upstream.kafka_client.dying")
    facts = cluster_inspection.look_beside("main", _cluster(), ["t"], ["g"])
    assert "ended three times without an answer" in facts.trouble


def test_setting_that_is_refused_is_told_by_the_process() -> None:
    """With librdkafka's words."""
    with pytest.raises(KafkaUnusable, match=r"kafka\.main"):
        cluster_inspection.look_beside("main", _cluster(**{"no.such.setting": 1}), ["t"], ["g"])


def test_cluster_that_cannot_be_reached_is_told_by_the_process() -> None:
    """As by a look in this one."""
    facts = cluster_inspection.look_beside("main", _cluster(), ["t"], ["g"])
    assert facts.trouble
    assert "ended" not in facts.trouble
