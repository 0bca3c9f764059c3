"""Several node processes in front of one Kafka: killed, standing still, added, stopped in order."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.kafka.nodes import Account, NodeProcess, Puller
from tests.kafka.topics import committed, delete_topic, make_topic, send_plainly, topic_names
from tests.patient import until

pytestmark = pytest.mark.long

PARTITIONS = 6
KEYS = 40
MESSAGES = 2_400
COMMIT_SECONDS = 1.0
"""What a commit takes at most here, on a machine with other work: 100 ms and a round trip elsewhere (D52)."""


def test_nothing_is_lost_doubled_or_out_of_order(address: str, topic: Callable[..., str], tmp_path: Path) -> None:
    """One node is killed, another stands still for longer than its session, a third comes, one leaves in order."""
    name, group = topic(PARTITIONS), f"riders-{os.getpid()}"
    drawn = Random(7)
    sent: dict[str, list[int]] = {f"k{number}": [] for number in range(KEYS)}
    account = Account(sent)
    faults: list[float] = []

    def send(count: int) -> None:
        rows = []
        for _ in range(count):
            key = drawn.choice(list(sent))
            sent[key].append(sum(len(each) for each in sent.values()))
            rows.append({"key": key.encode(), "value": f"{key} {sent[key][-1]}".encode()})
        send_plainly(address, name, rows)

    def start(node: str) -> NodeProcess:
        return NodeProcess(tmp_path, node, address=address, topic=name, group=group)

    def pullers(node: NodeProcess) -> list[Puller]:
        return [Puller(node, group, account, fails=lambda: drawn.random() < 0.02) for _ in range(2)]

    nodes = [start("one"), start("two")]
    clients = [each for node in nodes for each in pullers(node)]
    try:
        send(MESSAGES // 3)
        until(lambda: len(account.answered) > MESSAGES // 6, "both nodes are at work")
        faults.append(time.monotonic())
        nodes[0].kill()
        nodes.append(start("three"))
        clients += pullers(nodes[-1])
        send(MESSAGES // 3)
        until(lambda: len(account.answered) > MESSAGES // 2, "the others have what the first one had")
        faults.append(time.monotonic())
        nodes[1].pause()
        paused = time.monotonic()
        send(MESSAGES // 3)
        until(lambda: time.monotonic() > paused + 9, "its session is over")
        nodes[1].wake()
        until(lambda: not account.left, "all is answered")
        assert account.disorder == []
        late = [each for each in account.again if not _is_near(account.answered[each], faults)]
        assert late == [], "these came again, and their answers were committed"
        nodes[1].stop()
        nodes[2].stop()
        assert nodes[1].process.returncode == nodes[2].process.returncode == 0, nodes[1].log() + nodes[2].log()
    finally:
        for each in clients:
            each.stop()
        for node in nodes:
            node.kill()


def _is_near(moment: float, faults: list[float]) -> bool:
    return any(fault - COMMIT_SECONDS < moment < fault + COMMIT_SECONDS for fault in faults)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_topic_that_is_created_again_unseen_is_read_from_its_first_record(
    protocol: str, address: str, topic: Callable[..., str], tmp_path: Path
) -> None:
    """The node stands still meanwhile, and then the log has as many records as the one before."""
    name, group = topic(1), f"again-{os.getpid()}-{protocol}"
    account = Account({"k": list(range(60))})
    node = NodeProcess(tmp_path, "one", address=address, topic=name, group=group, protocol=protocol)
    puller = Puller(node, group, account, fails=lambda: False)
    try:
        send_plainly(address, name, [{"key": b"k", "value": b"k %d" % number} for number in range(30)])
        until(lambda: account.left == 30, "the records of the first topic")
        until(lambda: ";I" in (committed(address, group, name)[1] or ""), "a commit that names the topic")
        node.pause()
        paused = time.monotonic()
        delete_topic(address, name)
        until(lambda: name not in topic_names(address), "it to be gone")
        make_topic(address, name, 1, {})
        send_plainly(address, name, [{"key": b"k", "value": b"k %d" % number} for number in range(30, 60)])
        until(lambda: time.monotonic() > paused + 3, "ends to be missed")
        node.wake()
        until(lambda: not account.left, "the records of the second topic")
        assert account.disorder == []
    finally:
        puller.stop()
        node.kill()
