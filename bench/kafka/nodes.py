"""Nodes, over Kafka and over a store of their own, with clients that pull and answer."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

from bench.kafka.costs import Cost, Group, Load, bodies, measure, new_topic, sending, wait_idle, wait_until
from bench.servers.processes import Node
from pyddmq import Consumer, OutgoingMessage, Producer

GROUP = "bench"
CLIENTS = 4
"""Pull clients, over all nodes."""
CLIENTS_OF_NODE = 2
"""Likewise of each, where each node gets its rate."""
_NODE = """\
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, brokerName: {name}, drainSeconds: 5}}
kafka:
  main: {{bootstrapServers: "{address}", sessionTimeout: 6000, membership: always}}
topics: {{{topic}: {{brokerCluster: main}}}}
groups:
  - group: {group}
    topics: [{{topic: {topic}, orderKey: KEY, maxPullBatchSize: 32, timeout: 20000}}]
"""
"""Always a member: what nodes need at rest is looked at before anybody pulls."""
_EMBEDDED = """\
node: {producerPort: 0, consumerPort: 0, adminPort: 0}
topics: {bench: {queues: 12}}
groups:
  - group: bench
    topics: [{topic: bench, orderKey: KEY, maxPullBatchSize: 32, timeout: 20000}]
"""


def pull_all(consumers: Sequence[str], group: str, count: int, clients: int = CLIENTS) -> None:
    """Pull and answer from these addresses until so many are answered."""
    done, lock, over = [0], threading.Lock(), threading.Event()

    def work(address: str) -> None:
        with Consumer(address, group, batch_size=32, linger_ms=500, timeout_ms=60_000) as consumer:
            while not over.is_set():
                batch = consumer.pull()
                for message in batch:
                    consumer.ack(message)
                with lock:
                    done[0] += len(batch)
                    if done[0] >= count:
                        over.set()

    threads = [threading.Thread(target=work, args=(consumers[each % len(consumers)],)) for each in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def measure_nodes(load: Load, nodes: int, folder: Path) -> Cost:
    """Measure so many nodes; where the load has a rate, each has its own clients."""
    topic = new_topic(load)
    group = f"{GROUP}-{topic}"
    with ExitStack() as stack:
        running = []
        for each in range(nodes):
            name = f"{topic}-{each}"
            text = _NODE.format(name=name, address=load.address, topic=topic, group=group)
            running.append(Node(folder / name, text, core=None))
            stack.callback(running[-1].process.kill)
        found = Group(load, group, topic)
        stack.callback(found.close)
        wait_until(lambda: found.members() == nodes)

        def run() -> None:
            sender = sending(load, topic)
            clients = CLIENTS_OF_NODE * nodes if load.rate else CLIENTS
            pull_all([node.addresses["consumer"] for node in running], group, load.messages, clients)
            sender.join()

        pids = [node.process.pid for node in running]
        return measure(pids, load.messages, load.rest, run, lambda: found.wait_committed(load.messages))


def measure_embedded(load: Load, folder: Path) -> Cost:
    """Measure a node's own store, by messages that were published before."""
    node = Node(folder / f"embedded-{uuid4().hex[:8]}", _EMBEDDED, core=None)
    try:
        with Producer(node.addresses["producer"], timeout_ms=60_000) as producer:
            batch: list[OutgoingMessage] = []
            for key, value in bodies(load.messages):
                batch.append(OutgoingMessage(topic="bench", body=value, key=key.decode()))
                if len(batch) == 64:
                    producer.send_batch(batch)
                    batch = []
            if batch:
                producer.send_batch(batch)
        pids = [node.process.pid]
        return measure(
            pids,
            load.messages,
            load.rest,
            lambda: pull_all([node.addresses["consumer"]], GROUP, load.messages),
            lambda: wait_idle(pids, load.rest),
        )
    finally:
        node.process.kill()
