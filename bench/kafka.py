"""`python -m bench.kafka`: what a message over Kafka costs a node, as processor time, with one node, two and four.

Each run has a topic of its own, empty at first. When all members have joined and are at rest, a plain producer sends
the messages; clients pull them from every node and answer; processor time of the nodes is counted from the rest before
to the last commit. Beside it, by the same messages: a plain loop over a confluent-kafka consumer that commits every
100 ms, and a node's own store (published before, pulled in the measure). Where Kafka is: `PYDDMQ_KAFKA=host:port`, or
one is started (Java). Processor time is what a busy machine changes least; load is printed all the same.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from bench.progress import say
from broker.runtime.seams import SystemClock
from conf.sections.kafka import KafkaClusterConfig
from proxy.demo.kafka.nodes import NodeProcess
from proxy.demo.kafka.server import KafkaProcess, kafka_jars
from pyddmq import Consumer, OutgoingMessage, Producer
from upstream.kafka.link import KafkaFailure, Place
from upstream.kafka_client.all_groups_process import SurveyProcess
from upstream.kafka_client.new_topic import make_topic

PARTITIONS, KEYS, BODY_BYTES = 12, 1_000, 200
GROUP = "bench"
REST_SECONDS = 10.0
"""For so long it is looked at what nodes need at rest: heartbeats, commits for their lease, pulls of nothing."""
CLIENTS = 4
"""Pull clients, over all nodes."""
CLIENTS_OF_NODE = 2
"""Likewise of each, where each node gets its rate."""
_NODE = """\
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}, brokerName: {name}, drainSeconds: 5}}
kafka:
  main: {{bootstrapServers: "{address}", sessionTimeout: 6000, membership: always}}
topics: {{{topic}: {{brokerCluster: main}}}}
groups:
  - group: {group}
    topics: [{{topic: {topic}, orderKey: KEY, maxPullBatchSize: 32, timeout: 20000}}]
"""
"""Always a member: what nodes need at rest is looked at before anybody pulls."""
_EMBEDDED = """\
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {data}}}
topics: {{bench: {{queues: 12}}}}
groups:
  - group: bench
    topics: [{{topic: bench, orderKey: KEY, maxPullBatchSize: 32, timeout: 20000}}]
"""
_PLAIN = """
import resource, sys, time
from confluent_kafka import Consumer
address, topic, count, batch = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
consumer = Consumer({"bootstrap.servers": address, "group.id": "plain", "enable.auto.commit": False,
                     "auto.offset.reset": "earliest", "partition.assignment.strategy": "cooperative-sticky"})
consumer.subscribe([topic])
while not consumer.assignment():
    consumer.poll(0.1)
time.sleep(1)
def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
print("ready", flush=True)
before, seen, next_commit = used(), 0, 0.0
while seen < count:
    if batch > 1:
        messages = consumer.consume(batch, 0.5)
    else:
        message = consumer.poll(0.5)
        messages = [] if message is None else [message]
    for message in messages:
        if message.error() is None:
            message.value(), message.key(), message.headers()
            seen += 1
    if time.monotonic() > next_commit:
        consumer.commit(asynchronous=True) if seen else None
        next_commit = time.monotonic() + 0.1
consumer.commit(asynchronous=False)
print(used() - before, flush=True)
consumer.close()
"""


def cpu_seconds(pid: int) -> float:
    """Processor time of a process so far."""
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_idle(pids: Sequence[int]) -> None:
    """Wait until processes do next to nothing."""
    while True:
        before = sum(map(cpu_seconds, pids))
        time.sleep(1)
        if sum(map(cpu_seconds, pids)) - before < 0.05 * len(pids):
            return


def bodies(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values."""
    for number in range(count):
        yield b"k%d" % (number % KEYS), b"%d " % number + b"x" * BODY_BYTES


def send(address: str, topic: str, count: int, per_second: float = 0.0) -> None:
    """Send as another program does: all at once, or so many a second."""
    import confluent_kafka

    made: Any = confluent_kafka.Producer
    producer = made({"bootstrap.servers": address, "linger.ms": 20, "partitioner": "murmur2_random"})
    began = time.monotonic()
    for number, (key, value) in enumerate(bodies(count)):
        if per_second and (early := began + number / per_second - time.monotonic()) > 0.01:
            time.sleep(early)
        while True:
            try:
                producer.produce(topic, key=key, value=value)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    producer.flush(120)


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


def measure_nodes(address: str, nodes: int, count: int, folder: Path, *, rate: float = 0.0) -> tuple[float, float]:
    """Microseconds of processor time per message, over all nodes: in all, and less what they need at rest meanwhile.

    Args:
        address: Of Kafka.
        nodes: How many.
        count: Messages.
        folder: For their files.
        rate: Messages a second that each node is to get, about; 0: all at once.
    """
    topic = f"bench-{uuid4().hex[:8]}"
    config = KafkaClusterConfig.model_validate({"bootstrapServers": address})
    make_topic(config, topic, PARTITIONS, client_id="bench", clock=SystemClock())
    group = f"{GROUP}-{topic}"
    with ExitStack() as stack:
        running = []
        for each in range(nodes):
            name = f"{topic}-{each}"
            text = _NODE.format(name=name, data=folder / name, address=address, topic=topic, group=group)
            running.append(NodeProcess(folder, name, address=address, topic=topic, group=group, text=text))
        for node in running:
            stack.callback(node.kill)
        survey = SurveyProcess("bench", config, client_id="bench")
        stack.callback(survey.close)
        places = [Place(topic, each) for each in range(PARTITIONS)]

        def settled() -> bool:
            members = survey.groups([group])[group].members
            return len({who[0] for place in places for who in [members.get(place, [""])]} - {""}) == nodes

        def committed() -> bool:
            offsets = survey.groups([group])[group].committed
            return sum(offsets[each].offset for each in places if each in offsets) >= count

        _until(settled)
        pids = [node.pid for node in running]
        wait_idle(pids)
        rest, began = sum(map(cpu_seconds, pids)), time.monotonic()
        time.sleep(REST_SECONDS)
        before = sum(map(cpu_seconds, pids))
        per_second = (before - rest) / (time.monotonic() - began)
        began = time.monotonic()
        sender = threading.Thread(target=send, args=(address, topic, count, rate * nodes))
        sender.start()
        pull_all([node.consumers for node in running], group, count, CLIENTS_OF_NODE * nodes if rate else CLIENTS)
        sender.join()
        _until(committed)
        used = sum(map(cpu_seconds, pids)) - before
        return used / count * 1e6, (used - per_second * (time.monotonic() - began)) / count * 1e6


def measure_plain(address: str, batch: int, count: int) -> float:
    """Microseconds per message of a plain consumer."""
    topic = f"bench-{uuid4().hex[:8]}"
    config = KafkaClusterConfig.model_validate({"bootstrapServers": address})
    make_topic(config, topic, PARTITIONS, client_id="bench", clock=SystemClock())
    command = [sys.executable, "-c", _PLAIN, address, topic, str(count), str(batch)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        send(address, topic, count)
        return float(process.stdout.readline()) / count * 1e6


def measure_embedded(count: int, folder: Path) -> float:
    """Microseconds per message of a node's own store."""
    name = f"embedded-{uuid4().hex[:8]}"
    text = _EMBEDDED.format(data=folder / name)
    node = NodeProcess(folder, name, address="", topic="", group="", text=text)
    try:
        with Producer(node.producers, timeout_ms=60_000) as producer:
            batch: list[OutgoingMessage] = []
            for key, value in bodies(count):
                batch.append(OutgoingMessage(topic="bench", body=value, key=key.decode()))
                if len(batch) == 64:
                    producer.send_batch(batch)
                    batch = []
            if batch:
                producer.send_batch(batch)
        wait_idle([node.pid])
        before = cpu_seconds(node.pid)
        pull_all([node.consumers], GROUP, count)
        wait_idle([node.pid])
        return (cpu_seconds(node.pid) - before) / count * 1e6
    finally:
        node.kill()


def _until(holds: Any) -> None:
    deadline = time.monotonic() + 240
    while True:
        try:
            if holds():
                return
        except (KafkaFailure, KeyError):
            pass
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


@contextmanager
def kafka(folder: Path) -> Iterator[str]:
    """Give the address of a Kafka."""
    if given := os.environ.get("PYDDMQ_KAFKA"):
        yield given
        return
    from proxy.cli.demo.demo_kafka import free_ports

    server = KafkaProcess(folder / "kafka", kafka_jars(), ports=free_ports())
    try:
        server.start()
        yield server.address
    finally:
        server.kill()


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print a table and a line of JSON."""
    parser = argparse.ArgumentParser(prog="python -m bench.kafka", description=__doc__)
    parser.add_argument("--messages", type=int, default=40_000)
    parser.add_argument("--nodes", type=lambda text: [int(each) for each in text.split(",")], default=[1, 2, 4])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.0, help="messages a second for each node (0: all at once)")
    parser.add_argument("--nodes-only", action="store_true", help="leave out what stands beside them")
    asked = parser.parse_args(arguments)
    count = asked.messages
    found: dict[str, list[float]] = {}

    def note(name: str, value: float) -> None:
        found.setdefault(name, []).append(value)
        say(f"{name}: {value:.1f} us")

    with tempfile.TemporaryDirectory(prefix="pyddmq-bench-") as scratch, kafka(Path(scratch)) as address:
        folder = Path(scratch)
        for turn in range(asked.repeat):
            say(f"turn {turn + 1} of {asked.repeat}, load {os.getloadavg()[0]:.1f}")
            for nodes in asked.nodes:
                # Each node gets as many, in the same time, where there is a rate.
                wanted = count * nodes if asked.rate else count
                in_all, alone = measure_nodes(address, nodes, wanted, folder, rate=asked.rate)
                note(f"nodes {nodes}", alone)
                note(f"nodes {nodes}, with rest", in_all)
            if not asked.nodes_only:
                note("plain, 500 at once", measure_plain(address, 500, count))
                note("plain, one by one", measure_plain(address, 1, count))
                note("own store", measure_embedded(count, folder))
    base = statistics.median(found[f"nodes {asked.nodes[0]}"])
    for name, values in found.items():
        middle = statistics.median(values)
        spread = (max(values) - min(values)) / middle * 100
        print(
            f"{name:20} {middle:8.1f} us of processor time a message, {middle / base:5.2f} of one node ({spread:.0f} %)"
        )
    print(json.dumps({"messages": count, "us": {name: [round(each, 2) for each in v] for name, v in found.items()}}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
