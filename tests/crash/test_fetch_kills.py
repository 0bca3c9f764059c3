"""SIGKILL of a node at random moments while low-level clients ack: what was answered with True never comes again."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path

from pyddmq import ClientError, Fetcher, OutgoingMessage, Producer
from tests.crash.process import NodeProcess

KILLS = 4
MESSAGES = 4_000
QUEUES = 2
SETTINGS = {
    "node": {"ackSegmentBytes": 65_536},
    "topics": {"orders": {"queues": QUEUES}},
    "groups": [{"group": "low", "topics": [{"topic": "orders", "actions": ["LowLevel"], "maxPullBatchSize": 7}]}],
}
QIDS = [f"pyddmq_broker-0_{number}" for number in range(QUEUES)]


def address(place: tuple[str, int] | None) -> str:
    """Text of a port's address."""
    assert place is not None
    return f"{place[0]}:{place[1]}"


class Worker:
    """One client that owns queues and acks what it is given, until the node is gone.

    Attributes:
        answered: By queue the highest position that an ack of it was answered True for.
        sent: By queue the highest position that it ever acked.
    """

    def __init__(self, place: str, name: str) -> None:
        self.answered = dict.fromkeys(QIDS, 0)
        self.sent = dict.fromkeys(QIDS, 0)
        self._place, self._name = place, name
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        fetcher = Fetcher(self._place, "low", consumer_id=self._name, linger_ms=20)
        try:
            while True:
                for queue in fetcher.fetch():
                    if queue.messages:
                        self.sent[queue.qid] = queue.next_offset
                        if fetcher.ack_positions({(queue.topic, queue.qid): queue.next_offset}):
                            self.answered[queue.qid] = queue.next_offset
        except ClientError:
            pass


def test_answered_acks_outlive_kills(tmp_path: Path) -> None:
    """After each kill every queue begins at or behind what was answered, and not behind what was ever acked."""
    node, dice = NodeProcess(tmp_path, SETTINGS), random.Random(5)
    floor, ceiling = dict.fromkeys(QIDS, 0), dict.fromkeys(QIDS, 0)
    try:
        for life in range(KILLS + 1):
            assert node.start()
            if not life:
                with Producer(address(node.producer)) as producer:
                    messages = [
                        OutgoingMessage(topic="orders", body=b"%d" % number, partition_id=number % QUEUES)
                        for number in range(MESSAGES)
                    ]
                    producer.send_batch(messages)
            with Fetcher(address(node.consumer), "low", consumer_id="first") as first:
                starts = {queue.qid: (queue.messages[0].offset if queue.messages else None) for queue in first.fetch()}
            for qid, start in starts.items():
                if start is not None:
                    assert floor[qid] <= start <= ceiling[qid]
            if life == KILLS:
                break
            workers = [Worker(address(node.consumer), name) for name in ("first", "second")]
            time.sleep(dice.uniform(0.05, 0.6))
            node.kill()
            for worker in workers:
                worker.thread.join()
                for qid in QIDS:
                    floor[qid] = max(floor[qid], worker.answered[qid])
                    ceiling[qid] = max(ceiling[qid], worker.sent[qid])
    finally:
        node.close()
    assert any(floor.values())
