"""Topics in Kafka: two nodes share a consumer group, one is killed, and the other one takes over its partitions.

Each key stays in order over both nodes and over the kill; nothing is lost. Messages that the killed node had not yet
committed are delivered again.

It needs a Kafka and ``pip install 'pyddmq[server,kafka]'``. It creates a topic ``orders-...`` there, which stays. Run
it: ``python examples/kafka_two_nodes.py HOST:PORT``. It starts both nodes.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import uuid
from collections import defaultdict

from confluent_kafka.admin import AdminClient, NewTopic
from running_node import RunningNode, conclude

from pyddmq import ClientError, Consumer, OutgoingMessage, Producer

CONFIGURATION = """
node: {{brokerName: {name}}}
kafka:
  main: {{bootstrapServers: "{kafka}", sessionTimeout: 6000}}
topics:
  {topic}: {{brokerCluster: main}}
groups:
  - group: billing
    topics: [{{topic: {topic}, orderKey: KEY}}]
"""
KEYS = [f"customer-{number}" for number in range(20)]
SECONDS_MAX = 120


class Deliveries:
    """What was delivered, by which node, over all clients."""

    def __init__(self) -> None:
        self.complete = threading.Event()
        self.by_key: dict[str, list[int]] = defaultdict(list)
        self.by_node: dict[str, int] = defaultdict(int)
        self._lock = threading.Lock()

    def consume(self, node: RunningNode, name: str) -> None:
        """Consume from a node until everything is complete, or the node is killed."""
        with contextlib.suppress(ClientError), Consumer(node.consumer, "billing", batch_size=4) as consumer:
            while not self.complete.is_set():
                for message in consumer.pull():
                    with self._lock:
                        self.by_key[message.key or ""].append(int(message.body))
                        self.by_node[name] += 1
                    consumer.ack(message)

    def distinct(self) -> int:
        """Return how many different messages were delivered."""
        with self._lock:
            return sum(len(set(numbers)) for numbers in self.by_key.values())


def run(kafka: str, topic: str, deliveries: Deliveries) -> int:
    """Send rounds of a message per key, kill a node in the middle; returns how many rounds were sent."""

    def send_round(number: int) -> None:
        producer.send_batch([OutgoingMessage(topic=topic, body=str(number).encode(), key=key) for key in KEYS])

    first, second = (CONFIGURATION.format(name=name, kafka=kafka, topic=topic) for name in ("first", "second"))
    deadline = time.monotonic() + SECONDS_MAX
    with RunningNode(first) as stays, RunningNode(second) as killed, Producer(stays.producer) as producer:
        clients = [
            threading.Thread(target=deliveries.consume, args=(node, name), daemon=True)
            for node, name in ((stays, "first"), (killed, "second"))
        ]
        for client in clients:
            client.start()
        rounds = 0
        while deliveries.by_node["second"] < 50 and time.monotonic() < deadline:
            send_round(rounds)
            rounds += 1
            time.sleep(0.05)
        killed.kill()
        print(f"the second node was killed after {deliveries.by_node['second']} deliveries")
        for _ in range(10):
            send_round(rounds)
            rounds += 1
        while deliveries.distinct() < rounds * len(KEYS) and time.monotonic() < deadline:
            time.sleep(0.1)
        deliveries.complete.set()
        for client in clients:
            client.join()
    return rounds


def main(kafka: str) -> None:
    """Create the topic, run, and check that all was delivered, each key in order."""
    topic = f"orders-{uuid.uuid4().hex[:8]}"
    new = NewTopic(topic, num_partitions=8, replication_factor=1)
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([new])[topic].result(60)
    deliveries = Deliveries()
    rounds = run(kafka, topic, deliveries)
    again = sum(map(len, deliveries.by_key.values())) - deliveries.distinct()
    print(f"{deliveries.distinct()} messages delivered by {dict(deliveries.by_node)}; {again} of them again")
    failures = []
    if deliveries.by_node["second"] < 50:
        failures.append("the second node got no share of the partitions")
    for key in KEYS:
        # The first delivery of each number; what comes again begins earlier and continues in order.
        if list(dict.fromkeys(deliveries.by_key[key])) != list(range(rounds)):
            failures.append(f"{key}: messages are missing or out of order")
    conclude(failures)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
