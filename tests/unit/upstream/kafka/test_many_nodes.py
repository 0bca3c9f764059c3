"""Several nodes of one group over a simulated Kafka: they come, die, stand still and go on; the ledger adds up.

Of each hand-out it is asked, when it happens: is the partition this node's, by the coordinator itself (D54)? Is every
earlier message of its key finished (promise 3)? And in the end: was every message answered (nothing lost), and did
none come again after its answer was older than a commit takes (D52)?
"""

from __future__ import annotations

from random import Random

import pytest

from tests.contract.grounds import KafkaGround
from tests.unit.upstream_world import Client
from upstream.kafka.link import KafkaPartition
from upstream.kafka.partitions import MemberSettings

QUEUES = 4
KEYS = 12
SUBSCRIPTION = {
    "topic": "t",
    "orderKey": "KEY",
    "timeout": 4_000,
    "maxRetry": 1_000,
    "retryIntervals": [100, 300, 1000, -1],
    "maxPullBatchSize": 6,
}
SETTINGS = MemberSettings(session_seconds=6, revoke_seconds=2)
COMMIT_SECONDS = 0.2
"""The interval, two ways of at most 20 ms each, and a step of the test."""


class _Ledger:
    """What was handed out and answered."""

    def __init__(self) -> None:
        self.sent: dict[str, list[bytes]] = {}
        self.place: dict[bytes, tuple[str, int]] = {}
        self.answered: dict[bytes, float] = {}
        self.again_early = 0

    def handed_out(self, node: KafkaGround, key: str, body: bytes, queue: int) -> None:
        owner = node.cluster().group("g").owners.get(KafkaPartition("t", queue))
        assert owner is node.client.members[0], f"{body!r} is handed out by one who has not its partition"
        for earlier in self.sent[key]:
            if earlier == body:
                break
            assert earlier in self.answered, f"{body!r} is handed out before {earlier!r} is finished"
        answered = self.answered.get(body)
        if answered is not None:
            assert node.clock.monotonic() - answered < 60, "an answer of long ago"
            self.again_early += 1


def _run(seed: int) -> _Ledger:
    drawn = Random(seed)
    ledger = _Ledger()
    first = KafkaGround(SUBSCRIPTION, queues=QUEUES, seed=seed, settings=SETTINGS)
    cluster, nodes = first.cluster(), [first]
    out: list[tuple[KafkaGround, Client, str, int, str, bytes]] = []
    sent = 0
    committed_before_death: set[bytes] = set()
    uncommitted: set[bytes] = set()
    answered_by: dict[bytes, KafkaGround] = {}
    outages: list[tuple[float, float]] = []

    def node_of_world() -> KafkaGround:
        return KafkaGround(SUBSCRIPTION, queues=QUEUES, beside=first, settings=SETTINGS)

    def step(*, faults: bool, answers: float) -> None:
        nonlocal sent
        for node in list(nodes):
            if node.client.members[0].paused:
                continue
            client = Client()
            batch = node.pull(client, None)
            if batch is not None:
                queue = int(batch.qid.rsplit("_", 1)[1])
                for job in batch.jobs:
                    body = cluster.topics["t"][queue].records[job.offset].value or b""
                    key = (cluster.topics["t"][queue].records[job.offset].key or b"").decode()
                    ledger.handed_out(node, key, body, queue)
                    assert body not in committed_before_death, f"{body!r} comes again, and its answer was committed"
                    out.append((node, client, batch.qid, job.offset, key, body))
        for held in list(out):
            node, client, qid, offset, _, body = held
            if drawn.random() < answers and not node.client.members[0].paused:
                out.remove(held)
                failed = drawn.random() < 0.1
                counted = node in nodes and node.ack(client, (qid, offset), fail=failed) and not failed
                if counted and body not in ledger.answered:
                    ledger.answered[body] = node.clock.monotonic()
                    answered_by[body] = node
        if faults and drawn.random() < 0.06:
            fault(drawn.choice(["kill", "pause", "wake", "add", "leave", "down"]))
        first.advance(drawn.uniform(0.01, 0.2))

    def stops(node: KafkaGround) -> None:
        """What it answered just now may not be committed."""
        since = node.clock.monotonic() - COMMIT_SECONDS
        uncommitted.update(body for body, by in answered_by.items() if by is node and ledger.answered[body] >= since)

    def fault(what: str) -> None:
        alive = [node for node in nodes if not node.client.members[0].paused]
        if what == "add" and len(nodes) < 4:
            nodes.append(node_of_world())
        elif what == "kill" and len(alive) > 1:
            victim = drawn.choice(alive)
            now = first.clock.monotonic()
            stops(victim)
            for body, moment in ledger.answered.items():
                end = moment + COMMIT_SECONDS
                kept = body not in uncommitted and not any(since < end and moment < until for since, until in outages)
                if end < now and kept:
                    committed_before_death.add(body)
            victim.client.kill()
            nodes.remove(victim)
        elif what == "leave" and len(alive) > 1:
            victim = drawn.choice(alive)
            victim.member.leave(lambda: None)
            nodes.remove(victim)
        elif what == "pause" and len(alive) > 1:
            victim = drawn.choice(alive)
            stops(victim)
            victim.client.members[0].paused = True
        elif what == "wake":
            for node in nodes:
                if node.client.members[0].paused:
                    node.client.members[0].wake()
        elif what == "down":
            seconds = drawn.uniform(0.5, 3)
            cluster.down = True
            outages.append((first.clock.monotonic(), first.clock.monotonic() + seconds + 1))
            first.scheduler.call_later(seconds, lambda: setattr(cluster, "down", False))

    for _ in range(400):
        if sent < 300:
            key = f"k{drawn.randrange(KEYS)}"
            body = b"%d" % sent
            ledger.sent.setdefault(key, []).append(body)
            cluster.append(KafkaPartition("t", sum(key.encode()) % QUEUES), key.encode(), body)
            sent += 1
        step(faults=True, answers=0.3)
    fault("wake")
    for _ in range(1500):
        step(faults=False, answers=0.6)
        if len(ledger.answered) == sent:
            break
    assert len(ledger.answered) == sent, "some were never answered"
    return ledger


@pytest.mark.parametrize("seed", range(15))
def test_nothing_is_lost_doubled_or_out_of_order(seed: int) -> None:
    """Whatever happens to nodes and cluster."""
    _run(seed)
