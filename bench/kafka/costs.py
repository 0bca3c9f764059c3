"""What is the same for all that is measured over Kafka: its messages, its topics, and how processor time is counted.

Processor time of the measured processes runs from their rest before to the last commit. What they need at rest is
looked at first, for `rest` seconds, and taken off in proportion to the time that the messages took: what is left is
what the messages cost. How busy the cores were meanwhile, with everything, is noted beside it: where there is too
little of them messages wait, batches grow, and each message costs less.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple
from uuid import uuid4

from bench.servers.kafka import make_topic
from bench.servers.processes import core_seconds, process_cpu_seconds
from conf.sections.kafka import KafkaClusterConfig
from upstream.kafka.link import KafkaFailure, KafkaPartition
from upstream.kafka_client.all_groups_process import SurveyProcess

KEYS, BODY_BYTES = 1_000, 200
PATIENCE_SECONDS = 240
_IDLE_SHARE = 0.05
_IDLE_RESTS_MAX = 3


class Load(NamedTuple):
    """What is sent.

    Attributes:
        address: Of Kafka.
        partitions: Of the topic.
        messages: How many.
        rate: Messages a second; 0: all at once.
        rest: Seconds for which it is looked at what is needed at rest.
    """

    address: str
    partitions: int
    messages: int
    rate: float
    rest: float


class Cost(NamedTuple):
    """What messages cost.

    Attributes:
        alone: Microseconds of processor time per message, without what is needed at rest.
        in_all: Likewise with it.
        per_second: Messages worked on a second, from the first one's sending.
        busy: Share of the machine's cores that was in use, by whomever.
    """

    alone: float
    in_all: float
    per_second: float
    busy: float


def measure(pids: Sequence[int], count: int, rest: float, run: Callable[[], None], settled: Callable[[], None]) -> Cost:
    """Measure processes.

    Args:
        pids: Theirs.
        count: Messages.
        rest: Seconds for which to look at what they need at rest.
        run: Returns when all messages were worked on.
        settled: Returns when that is committed.
    """
    wait_idle(pids, _IDLE_RESTS_MAX * rest)
    began, rested = time.monotonic(), _used(pids)
    time.sleep(rest)
    before, cores = _used(pids), _cores_used()
    at_rest = (before - rested) / (time.monotonic() - began)
    began = time.monotonic()
    run()
    worked = time.monotonic() - began
    busy = min(1.0, (_cores_used() - cores) / worked / len(os.sched_getaffinity(0)))
    settled()
    used, took = _used(pids) - before, time.monotonic() - began
    return Cost((used - at_rest * took) / count * 1e6, used / count * 1e6, count / worked, busy)


def _used(pids: Sequence[int]) -> float:
    return sum(map(process_cpu_seconds, pids))


def _cores_used() -> float:
    return sum(map(core_seconds, os.sched_getaffinity(0)))


def wait_idle(pids: Sequence[int], seconds: float) -> None:
    """Wait until processes do next to nothing, but no longer than so: a Java program may never do so little."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        before = _used(pids)
        time.sleep(1)
        if _used(pids) - before < _IDLE_SHARE * len(pids):
            return


def wait_until(holds: Callable[[], object]) -> None:
    """Ask until something holds; that Kafka does not answer is no answer."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if holds():
                return
        except (KafkaFailure, KeyError):
            pass
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.2)


def new_topic(load: Load) -> str:
    """Make an empty topic."""
    topic = f"bench-{uuid4().hex[:8]}"
    make_topic(load.address, topic, load.partitions)
    return topic


def cluster(address: str) -> KafkaClusterConfig:
    """Return the configuration of a cluster."""
    return KafkaClusterConfig.model_validate({"bootstrapServers": address})


class Group:
    """What Kafka says of a group in a topic."""

    def __init__(self, load: Load, group: str, topic: str) -> None:
        self._survey = SurveyProcess("bench", cluster(load.address), client_id="bench")
        self._group = group
        self._places = [KafkaPartition(topic, each) for each in range(load.partitions)]

    def members(self) -> int:
        """Return how many members have partitions."""
        members = self._survey.groups([self._group])[self._group].members
        return len({who[0] for place in self._places for who in [members.get(place, [""])]} - {""})

    def wait_committed(self, count: int) -> None:
        """Wait until so many messages are committed."""

        def committed() -> bool:
            offsets = self._survey.groups([self._group])[self._group].committed
            return sum(offsets[each].offset for each in self._places if each in offsets) >= count

        wait_until(committed)

    def close(self) -> None:
        """Ask nothing more."""
        self._survey.close()


def bodies(count: int) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values."""
    for number in range(count):
        yield b"k%d" % (number % KEYS), b"%d " % number + b"x" * BODY_BYTES


def sending(load: Load, topic: str) -> threading.Thread:
    """Begin to send."""
    thread = threading.Thread(target=send, args=(load.address, topic, load.messages, load.rate))
    thread.start()
    return thread


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
