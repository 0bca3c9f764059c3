"""A partition of a real Kafka whose leader lacks what the group has read, as after an unclean election.

Such a leader is made by what it has: the partition's files of an earlier moment.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.nodes import Account, NodeProcess, Puller
from tests.kafka.server import KafkaServer
from tests.kafka.topics import committed, make_topic, send_plainly
from tests.patient import until

pytestmark = pytest.mark.long

OLD, LOST, NEW = 10, 20, 40
"""Records that stay, that are lost after they were read, and that are written in their places and beyond."""


@pytest.fixture
def kafka(jars: str, tmp_path: Path) -> Iterator[KafkaServer]:
    """One whose files are changed."""
    server = KafkaServer(tmp_path / "kafka", Path(jars))
    try:
        server.start()
        yield server
    finally:
        server.kill()


@pytest.mark.parametrize("runs", [True, False], ids=["a node runs", "no node runs"])
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_new_records_in_the_places_of_lost_ones_are_read(
    protocol: str, runs: bool, kafka: KafkaServer, tmp_path: Path
) -> None:
    """Though the log has grown beyond the group's offset, and what was read stays finished."""
    name, group, account = "orders", f"unclean-{os.getpid()}", Account({"k": list(range(OLD + LOST + NEW))})
    clients: list[Puller] = []
    nodes: list[NodeProcess] = []
    numbers = iter(range(OLD + LOST + NEW))

    def send(count: int) -> None:
        rows = [{"key": b"k", "value": b"k %d" % next(numbers)} for _ in range(count)]
        send_plainly(kafka.address, name, rows)

    def start() -> None:
        node = NodeProcess(
            tmp_path, f"n{len(nodes)}", address=kafka.address, topic=name, group=group, protocol=protocol
        )
        nodes.append(node)
        clients.append(Puller(node, group, account, fails=lambda: False))

    def has_committed() -> bool:
        return committed(kafka.address, group, name)[0] == OLD + LOST

    try:
        make_topic(kafka.address, name, 1, {})
        send(OLD)
        kafka.stop()
        files = _files_of(tmp_path / "kafka", f"{name}-0")
        shutil.copytree(files, tmp_path / "earlier")
        kafka.start()
        send(LOST)
        start()
        until(lambda: account.left == NEW, "what is there")
        until(has_committed, "the commit of it")
        if not runs:
            nodes[0].stop()
        kafka.stop()
        shutil.rmtree(files)
        shutil.copytree(tmp_path / "earlier", files)
        kafka.start()
        send(NEW)
        if not runs:
            start()
        until(lambda: not account.left, "what is new")
        assert account.again == []
    finally:
        _end(clients, nodes)


def _files_of(folder: Path, name: str) -> Path:
    [found] = [each for each in folder.rglob(name) if each.is_dir()]
    return found


def _end(clients: list[Puller], nodes: list[NodeProcess]) -> None:
    for client in clients:
        client.stop()
    for node in nodes:
        node.kill()
