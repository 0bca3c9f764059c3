"""One Kafka for all tests of the folder, which share it by names of their own; or that of `PYDDMQ_KAFKA=host:port`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from bench.servers.maven import JarsMissing
from tests.conftest import need
from tests.kafka import server
from tests.kafka.topics import make_topic
from tests.kafka_world import Clients


@pytest.fixture(scope="session")
def jars() -> str:
    """Kafka's jars."""
    try:
        return str(server.JARS.fetch())
    except JarsMissing as error:
        need(False, f"{error}, so it")
        raise


@pytest.fixture(scope="session")
def address(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where Kafka is."""
    if given := os.environ.get("PYDDMQ_KAFKA"):
        yield given
        return
    request.getfixturevalue("jars")
    kafka = server.KafkaServer(tmp_path_factory.mktemp("kafka") / "shared", server.JARS.fetch())
    try:
        kafka.start()
        yield kafka.address
    finally:
        kafka.kill()


@pytest.fixture(scope="session")
def _killed(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[server.KafkaServer]:
    kafka = server.KafkaServer(tmp_path_factory.mktemp("kafka") / "killed", Path(jars))
    try:
        yield kafka
    finally:
        kafka.kill()


@pytest.fixture
def killable(_killed: server.KafkaServer) -> server.KafkaServer:
    """One that tests kill and start again, one after the other, by names of their own; it runs."""
    if not _killed.runs:
        _killed.start()
    return _killed


@pytest.fixture
def clients(address: str) -> Iterator[Clients]:
    """Clients of it."""
    found = Clients(address)
    try:
        yield found
    finally:
        found.end()


@pytest.fixture
def topic(address: str, request: pytest.FixtureRequest) -> Callable[..., str]:
    """Makes a topic of the test's own."""
    made: list[str] = []

    def make(partitions: int = 1, **settings: str) -> str:
        name = f"{request.node.name.split('[')[0][-60:]}-{uuid4().hex[:8]}-{len(made)}"
        made.append(name)
        make_topic(address, name, partitions, settings)
        return name

    return make
