"""What a start says of the limit of open files."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from conf import Config, loads
from proxy.process.serve import _warn_of_descriptors

QUEUES, CONNECTIONS = 300, 100


@pytest.fixture
def config() -> Config:
    """A configuration with 300 queues, a topic of Kafka, and at most 100 connections."""
    return loads(f"""
node: {{data: /data, maxConnections: {CONNECTIONS}}}
kafka: {{main: {{bootstrapServers: "h:1"}}}}
topics: {{t: {{queues: {QUEUES}}}, of-kafka: {{brokerCluster: main}}}}
groups: [{{group: g, topics: [{{topic: t}}]}}]
""").config


@pytest.mark.parametrize("descriptors", [CONNECTIONS - 1, 2 * QUEUES - 2])
def test_low_limit_is_one_warning_with_what_to_set(config: Config, descriptors: int) -> None:
    """Too low for connections, or for the files of queues: the numbers, and the limit that would do."""
    with capture_logs() as logs:
        _warn_of_descriptors(descriptors, config)
    [line] = logs
    assert (line["event"], line["log_level"]) == ("open_files_limited", "warning")
    assert f"there are {QUEUES} queues" in line["text"]
    assert f"LimitNOFILE={CONNECTIONS + 1024}" in line["text"]


def test_sufficient_limit_logs_nothing(config: Config) -> None:
    """Half of the descriptors are for files of queues."""
    with capture_logs() as logs:
        _warn_of_descriptors(2 * QUEUES, config)
    assert logs == []
