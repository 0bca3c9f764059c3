"""What the interchange tests put into stores, and how this broker reads a store back, in the client's own form."""

from __future__ import annotations

import itertools
import socket
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import NamedTuple

from broker.feature import Feature
from broker.features import ALL
from broker.format.body import split_body
from broker.format.java import queue_of_key
from broker.format.properties import encode_properties, parse_properties
from broker.format.record import (
    born_host,
    born_timestamp,
    physical_offset,
    prepared_offset,
    queue_offset,
    reconsume_times,
    store_timestamp,
)
from broker.format.record import queue_id as queue_id_of
from broker.log.put import Put
from broker.options import StoreOptions
from broker.queues.consume_queue import FILLER
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Clock, SystemClock
from broker.store import Store
from proxy.demo.events import load_events
from tests.interop.rocketmq import Message

QUEUES = 4
BODY_BYTES_MAX = 4 << 20
STORE_HOST = socket.inet_aton("127.0.0.1") + struct.pack(">i", 10911)
OPTIONS = StoreOptions(
    segment_bytes=6 << 20, queue_file_units=1000, index_slots=5000, index_entries=20_000, store_host=STORE_HOST
)
TOPICS = ("permits", "random", "%DLQ%some-group", "T" * 127)
BORN_HOSTS = (
    socket.inet_aton("10.1.2.3") + struct.pack(">i", 40_000),
    socket.inet_pton(socket.AF_INET6, "2001:db8::17") + struct.pack(">i", 65_535),
)
_PLAIN = [chr(code) for code in range(0x20, 0x7F)]
_STRANGE = (
    "\x00\x03\t\n\r\"'\\=#:|@äßπжñ中文字漢한글עבריתعربي\u200b\u200d\u2028\ufeff\ufffd\uffff😀👩🏽\U0001f680\U0010ffff"
)
_BODY_BYTES = (0, 1, 2, 20, 300, 1024, 5000, 70_000)


class Sent(NamedTuple):
    """A message as its producer made it."""

    topic: str
    queue_id: int
    key: str
    tags: str
    properties: dict[str, str]
    body: bytes


def permits() -> Iterator[Sent]:
    """Yield the sample data as the demo sends it."""
    for event in load_events():
        queue_id = queue_of_key(event.case, QUEUES)
        yield Sent("permits", queue_id, event.case, "event", {"demoRun": "interchange"}, event.body("interchange"))


def randoms(
    seed: int, *, topics: Sequence[str] = TOPICS[1:], empty_bodies: bool = True, large_each: int = 400
) -> Iterator[Sent]:
    """Yield random messages without end: any text in keys, tags and properties, any bytes in bodies.

    Args:
        seed: The same seed yields the same messages.
        topics: Where to.
        large_each: How many messages have one of about 4 MiB among them.
        empty_bodies: Whether a body may be empty; RocketMQ's client refuses such a message, its broker reads it.
    """
    random = Random(seed)
    for number in itertools.count():
        names = {f"p{_text(random, 12)}" for _ in range(random.choice((0, 1, 2, 7)))}
        size = random.choice(_BODY_BYTES) or int(not empty_bodies)
        if number % large_each == large_each - 1:
            size = BODY_BYTES_MAX - 1024 * (number % 3)
        yield Sent(
            topic=random.choice(topics),
            queue_id=random.randrange(QUEUES),
            key=random.choice(("", _text(random, 60).strip())),
            tags=random.choice(("", "TagA", _text(random, 30).strip())),
            # RocketMQ's client takes no blank values.
            properties={name: f"v{_text(random, 200)}" for name in sorted(names)},
            body=random.randbytes(size),
        )


def _text(random: Random, chars_max: int) -> str:
    alphabet = _PLAIN if random.random() < 0.5 else _STRANGE
    return "".join(random.choices(alphabet, k=random.randint(1, chars_max)))


def open_store(
    root: Path, options: StoreOptions = OPTIONS, clock: Clock | None = None, features: Sequence[Feature] = ALL
) -> Store:
    """Open a store on the real disk, with the real time unless another is given."""
    return Store.open(
        str(root),
        options=options,
        features=features,
        disk=RealDisk(),
        clock=clock or SystemClock(),
        random=SystemRandom(),
        metrics=Metrics(),
    )


def write(store: Store, messages: Sequence[Sent], *, born: bytes = BORN_HOSTS[0], atomic: bool = False) -> None:
    """Append and flush messages in one go."""
    for topic in {each.topic for each in messages}:
        store.create_topic(topic, QUEUES)
    puts = []
    for each in messages:
        pairs = {"KEYS": each.key, "TAGS": each.tags, **each.properties}
        puts.append(
            Put(store.topics[each.topic], each.queue_id, each.body, encode_properties(pairs), each.tags.encode())
        )
    store.append(puts, born_ms=SystemClock().wall_ms(), born_host=born, atomic=atomic)
    store.flush()
    assert store.failed is None


def write_all(store: Store, messages: Sequence[Sent]) -> None:
    """Append and flush many messages: in batches, some atomic, from IPv4 and IPv6 producers."""
    random = Random(len(messages))
    at = 0
    while at < len(messages):
        batch = messages[at : at + random.choice((1, 7, 32, 200))]
        atomic = random.random() < 0.3 and sum(len(each.body) for each in batch) < BODY_BYTES_MAX
        write(store, batch, born=random.choice(BORN_HOSTS), atomic=atomic)
        at += len(batch)


def read(store: Store, topic: str) -> tuple[dict[int, tuple[int, int]], list[Message]]:
    """Return the bounds of a topic's queues and all its messages, as `Client.read` does."""
    bounds = {}
    messages = []
    for queue in store.topics[topic].queues:
        bounds[queue.queue_id] = (queue.min_offset, queue.max_offset)
        units = queue.read(queue.min_offset, queue.max_offset - queue.min_offset)
        assert FILLER not in units
        for place, (physical, size, _) in enumerate(units):
            message = _message(topic, store.read(physical, size))
            assert (message.queue_id, message.offset) == (queue.queue_id, queue.min_offset + place)
            messages.append(message)
    return bounds, messages


def _message(topic: str, record: memoryview) -> Message:
    body, block = split_body(record, BODY_BYTES_MAX)
    properties = parse_properties(block)
    host_at = 76 if record[39] & 0x10 else 64
    return Message(
        topic=topic,
        queue_id=queue_id_of(record),
        offset=queue_offset(record),
        physical=physical_offset(record),
        size=len(record),
        born_ms=born_timestamp(record),
        born_host=_host(born_host(record)),
        stored_ms=store_timestamp(record),
        store_host=_host(bytes(record[host_at : host_at + 8])),
        reconsumed=reconsume_times(record),
        replaces=prepared_offset(record),
        key=properties.get("KEYS", ""),
        tags=properties.get("TAGS", ""),
        unique_key=properties.get("UNIQ_KEY", ""),
        properties=properties,
        body=bytes(body),
    )


def _host(raw: bytes) -> str:
    """Write a host as Java shows it: address, blank, port."""
    if len(raw) == 8:
        return f"{socket.inet_ntoa(raw[:4])} {struct.unpack('>i', raw[4:])[0]}"
    groups = struct.unpack(">8H", raw[:16])
    return f"{':'.join(f'{group:x}' for group in groups)} {struct.unpack('>i', raw[16:])[0]}"


def sent_of(message: Message) -> Sent:
    """What the producer of a stored message sent; properties that broker and client add are left out."""
    own = {name: value for name, value in message.properties.items() if name.startswith("p") or name == "demoRun"}
    return Sent(message.topic, message.queue_id, message.key, message.tags, own, message.body)
