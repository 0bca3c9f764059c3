"""`python -m bench.kafka.waiting`: how late one node delivers timers of a Kafka topic, and how many a second.

Timers are sent in batches before the first is due. With `--rate R` their moments are spread over `--seconds`; then all
of `--burst` are due at once. A read-committed consumer of Kafka takes the time at which each one can be read, and a
producer sends ordinary messages beside. The node, Kafka, the consumer and the producers share the machine: what is said
of a rate is a lower bound. With `--pending N --fired M` a takeover is measured in their place (`bench.kafka.takeover`).
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Consumer as KafkaConsumer

from bench.kafka.takeover import measure
from bench.progress import say
from bench.servers.kafka import make_topic, running_kafka
from bench.servers.processes import Node, process_cpu_seconds
from pyddmq import OutgoingMessage, Producer, SendRefused
from upstream.kafka.waiting.topics import ANSWER_SETTINGS, TOPIC_SETTINGS

_NODE = """\
node: {{producerPort: 0, consumerPort: 0, adminPort: 0}}
kafka:
  main: {{bootstrapServers: "{address}", waiting: {{partitions: {partitions}}}}}
topics: {{timers: {{brokerCluster: main}}, plain: {{brokerCluster: main}}}}
"""
_BATCH = 100
_BODY = b"x" * 1000
_AHEAD_MS = 3_000
_SEND_SECONDS = 0.01


class _Arrivals:
    """Reads the topic: how late each message is, ms, by its own body."""

    def __init__(self, address: str) -> None:
        self.late: list[float] = []
        self.last = 0.0
        self._over = threading.Event()
        self._consumer = KafkaConsumer({
            "bootstrap.servers": address, "group.id": "bench", "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "fetch.wait.max.ms": 10,
        })  # fmt: skip
        self._consumer.subscribe(["timers"])
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(1_000, 0.01):
                now = time.time() * 1000
                value = message.value() or b"0 "
                self.late.append(now - float(value.partition(b" ")[0]))
                self.last = now
        self._consumer.close()

    def wait(self, count: int) -> list[float]:
        """Return how late so many were, the earliest first."""
        deadline = time.monotonic() + 900
        while len(self.late) < count and time.monotonic() < deadline:
            time.sleep(0.05)
        found, self.late = sorted(self.late), []
        return found

    def end(self) -> None:
        """Stop reading."""
        self._over.set()
        self._thread.join()


class _Sends:
    """Sends ordinary messages to another topic, one after the other: how long each took, ms."""

    def __init__(self, address: str) -> None:
        self.took: list[float] = []
        self._over = threading.Event()
        self._address = address
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        with Producer(self._address, timeout_ms=10_000) as producer:
            while not self._over.wait(_SEND_SECONDS):
                began = time.monotonic()
                producer.send("plain", _BODY)
                self.took.append((time.monotonic() - began) * 1000)

    def shown(self, name: str) -> None:
        """Print what it took since the last time."""
        took, self.took = sorted(self.took), []
        p50, p99 = took[len(took) // 2], took[min(len(took) - 1, len(took) * 99 // 100)]
        print(f"ordinary sends {name}: {len(took):,}, p50 {p50:.1f} ms, p99 {p99:.1f} ms", flush=True)

    def end(self) -> None:
        """Send nothing more."""
        self._over.set()
        self._thread.join()


def send(address: str, moments_ms: list[float]) -> float:
    """Have a timer wait for each moment; returns how many were sent a second."""
    began = time.monotonic()
    with Producer(address, timeout_ms=10_000) as producer:
        for first in range(0, len(moments_ms), _BATCH):
            batch = [
                OutgoingMessage(topic="timers", body=b"%d %b" % (at, _BODY), deliver_at_ms=round(at))
                for at in moments_ms[first : first + _BATCH]
            ]
            producer.send_batch(batch)
    return len(moments_ms) / (time.monotonic() - began)


def is_ready(node: Node) -> bool:
    """Whether the node takes timers."""
    try:
        send("{}:{}".format(*node.producer), [time.time() * 1000 + 100])
    except SendRefused:
        return False
    return True


def shown(name: str, late: list[float], seconds: float, cpu: float) -> None:
    """Print a line of figures."""
    count = len(late)
    p50, p99 = late[count // 2], late[min(count - 1, count * 99 // 100)]
    print(
        f"{name}: {count:,} timers, {count / seconds:,.0f} a second, late p50 {p50:.1f} ms, p99 {p99:.1f} ms, "
        f"first {late[0]:.1f} ms, node {cpu / count * 1e6:.0f} us of CPU each",
        flush=True,
    )


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=1_000, help="timers a second (%(default)s)")
    parser.add_argument("--seconds", type=int, default=30, help="for so long (%(default)s)")
    parser.add_argument("--burst", type=int, default=30_000, help="timers that are due at once (%(default)s)")
    parser.add_argument("--partitions", type=int, default=4, help="of the waiting topic (%(default)s)")
    parser.add_argument("--pending", type=int, default=0, help="messages that wait in a takeover (%(default)s)")
    parser.add_argument("--fired", type=int, default=0, help="messages that were fired before it (%(default)s)")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bench-waiting-") as name, running_kafka(Path(name)) as address:
        make_topic(address, "timers", 4)
        make_topic(address, "plain", 4)
        make_topic(address, "__pyddmq_waiting", asked.partitions, TOPIC_SETTINGS)
        make_topic(address, "__pyddmq_answers", 1, ANSWER_SETTINGS)
        config = _NODE.format(address=address, partitions=asked.partitions)
        node = Node(Path(name) / "node", config, core=None)
        arrivals, sends = _Arrivals(address), None
        try:
            while not is_ready(node):
                time.sleep(0.5)
            # Owners of all partitions.
            time.sleep(10)
            arrivals.wait(1)
            if asked.pending:
                node.process.stop()

                def arrived(count: int) -> float:
                    arrivals.wait(count)
                    return arrivals.last / 1000

                measure(Path(name) / "node", config, address, asked.partitions, asked.pending, asked.fired, arrived)
                return
            producers = "{}:{}".format(*node.producer)
            count = asked.rate * asked.seconds
            say(f"{count:,} timers over {asked.seconds} s")
            ahead_ms = _AHEAD_MS + count / 5
            start = time.time() * 1000 + ahead_ms
            sent = send(producers, [start + number * 1000 / asked.rate for number in range(count)])
            print(f"sent {sent:,.0f} a second", flush=True)
            sends = _Sends(producers)
            time.sleep(max(0.0, start / 1000 - time.time()))
            sends.shown("alone")
            cpu = process_cpu_seconds(node.process.pid)
            late = arrivals.wait(count)
            shown(f"{asked.rate:,}/s", late, asked.seconds, process_cpu_seconds(node.process.pid) - cpu)
            sends.shown("beside it")
            say(f"{asked.burst:,} timers at once")
            at = time.time() * 1000 + _AHEAD_MS + asked.burst / 2
            send(producers, [at] * asked.burst)
            time.sleep(max(0.0, at / 1000 - time.time()))
            cpu = process_cpu_seconds(node.process.pid)
            late = arrivals.wait(asked.burst)
            shown("burst", late, (arrivals.last - at) / 1000, process_cpu_seconds(node.process.pid) - cpu)
            sends.shown("beside the burst")
            sends.end()
        finally:
            if sends is not None:
                sends.end()
            arrivals.end()
            node.process.stop()


if __name__ == "__main__":
    main()
