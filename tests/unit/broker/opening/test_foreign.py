"""What only RocketMQ reads is refused or reported by name and number when a store is opened."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.errors import MessageRefused, StoreForeign
from broker.format.java import tags_code
from broker.format.record import HEADER, HEADER_BYTES, MAGIC_V2, split
from broker.log.put import Put
from broker.opening.accepted_content import accept
from broker.opening.foreign import in_layout
from broker.queues.consume_queue import UNIT
from broker.runtime.metrics import Metrics
from broker.runtime.sums import crc32
from broker.tools.check import Severity, StoreCheck, StoreFinding
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import ROOT, append, bodies, open_store

NOW_MS = 1_795_000_000_000


def write(disk: SimDisk, path: str, data: bytes | str) -> None:
    """Put a file into the store as RocketMQ would."""
    folders = path.split("/")[:-1]
    for count in range(1, len(folders) + 1):
        disk.make_folder("/".join((ROOT, *folders[:count])))
    file = disk.open(f"{ROOT}/{path}", create=True)
    file.truncate(0)
    file.write(0, [data.encode() if isinstance(data, str) else data])
    file.close()


def store_with(counts: dict[str, list[int]], more: dict[str, list[bytes]] | None = None) -> SimDisk:
    """A closed store with so many messages by topic and queue, and further ones with these bodies in queue 0."""
    disk = SimDisk()
    store = open_store(disk)
    for topic, queues in counts.items():
        store.create_topic(topic, len(queues), system=True)
        for queue_id, count in enumerate(queues):
            append(store, *[b"%d" % number for number in range(count)], topic=topic, queue_id=queue_id)
    for topic, found in (more or {}).items():
        store.create_topic(topic, 1, system=True)
        append(store, *found, topic=topic)
    store.close()
    return disk


def reported(disk: SimDisk, **options: Any) -> dict[str, int]:
    """Open a store; what its gauge says of each kind, which its log says in words."""
    metrics = Metrics()
    with capture_logs() as logs:
        store = open_store(disk, metrics=metrics, **options)
    store.close()
    said = {line["kind"]: line["count"] for line in logs if line["event"] == "store_holds_foreign"}
    assert said == {kind: metrics.value("pyddmq_store_foreign", kind) for kind in said}
    assert [(each.kind, each.count) for each in store.recovery.foreign] == list(said.items())
    return said


def test_store_of_ours_has_nothing_foreign() -> None:
    """Nothing is said of ordinary stores."""
    assert reported(store_with({"t": [2]})) == {}


def test_what_is_pending_is_nothing_foreign() -> None:
    """Delayed and timed messages and transactions are served, whoever began them."""
    names = ("SCHEDULE_TOPIC_XXXX", "rmq_sys_wheel_timer", "RMQ_SYS_TRANS_HALF_TOPIC")
    assert reported(store_with({name: [2] for name in names})) == {}


@pytest.mark.parametrize(
    ("path", "content", "kind", "said"),
    [
        (
            "config/topics.json",
            '{"topicConfigTable":{"big":{"attributes":{"queue.type":"BatchCQ"}}}}',
            "batch_queues",
            "topics big",
        ),
        ("batchconsumequeue/large/0/00000000000000000000", bytes(46), "batch_queues", "topics large"),
        ("consumequeue/CURRENT", "MANIFEST-000004\n", "rocksdb", "folders consumequeue"),
        ("config/topics/CURRENT", "MANIFEST-000004\n", "rocksdb", "folders config/topics"),
        ("config/rdb/config-storage-1/CURRENT", "MANIFEST-000004\n", "rocksdb", "folders config/rdb/config-storage-1"),
    ],
)
def test_what_would_be_served_wrongly_is_refused(path: str, content: bytes | str, kind: str, said: str) -> None:
    """By name, before anything is changed."""
    disk = store_with({"t": [1]})
    write(disk, path, content)
    names = {folder: disk.list(f"{ROOT}/{folder}") for folder in ("", "config", "pyddmq", "consumequeue")}
    with pytest.raises(StoreForeign, match=said) as caught:
        open_store(disk)
    assert caught.value.counts == {kind: 1}
    assert names == {folder: disk.list(f"{ROOT}/{folder}") for folder in names}


@pytest.mark.parametrize(
    ("path", "content", "kind"),
    [
        (
            "config/topics.json",
            '{"topicConfigTable":{"t":{"attributes":{"cleanup.policy":"COMPACTION"}}}}',
            "compaction",
        ),
        ("config/topicQueueMapping.json", '{"topicQueueMappingInfoMap":{"t":{"totalQueues":4}}}', "static_topics"),
        ("consumequeue/%LMQ%light/0/00000000000000000000", bytes(20 * 8), "light_queues"),
    ],
)
def test_what_is_served_otherwise_is_reported(path: str, content: bytes | str, kind: str) -> None:
    """The store opens, every message of the log is there."""
    disk = store_with({"t": [2]})
    write(disk, path, content)
    assert reported(disk) == {kind: 1}
    store = open_store(disk)
    assert bodies(store) == {0: b"0", 1: b"1"}
    store.close()


@pytest.mark.parametrize(("folder", "kind"), [("kvStore", "pop_in_rocksdb"), ("rocksdbstore", "timers_in_rocksdb")])
def test_rocksdb_beside_the_files_is_opened_once_it_is_accepted(folder: str, kind: str) -> None:
    """An empty one is passed over; the same content is not asked for again, other content is."""
    disk = store_with({"t": [2]})
    write(disk, f"{folder}/CURRENT", "MANIFEST-000004\n")
    write(disk, f"{folder}/000004.log", b"")
    assert reported(disk) == {}
    write(disk, f"{folder}/000011.sst", bytes(1520))
    with pytest.raises(StoreForeign, match=r"--accept") as caught:
        open_store(disk)
    assert caught.value.counts == {kind: 1}
    assert [each.severity for each in check_of(disk)] == [Severity.WARNING]
    assert [each.kind for each in accept(ROOT, disk)] == [kind]
    assert reported(disk) == {kind: 1}
    assert reported(disk) == {kind: 1}
    assert [each.severity for each in check_of(disk)] == [Severity.NOTE]
    assert accept(ROOT, disk) == []
    write(disk, f"{folder}/000012.sst", bytes(99))
    with pytest.raises(StoreForeign, match=folder):
        open_store(disk)


def check_of(disk: SimDisk) -> list[StoreFinding]:
    """What the check of a store says of foreign content."""
    return [each for each in StoreCheck(ROOT, disk, ManualClock()).run() if each.kind == "foreign"]


def test_many_names_are_shortened() -> None:
    """A sentence names five and counts the rest."""
    disk = store_with({"t": [1]})
    for number in range(7):
        write(disk, f"batchconsumequeue/topic{number}/0/0", b"")
    [found] = in_layout(ROOT, disk)
    assert found.sentence.startswith("topics topic0, topic1, topic2, topic3, topic4 and 2 more are")


def test_settings_that_cannot_be_parsed_are_no_finding() -> None:
    """Their damage is reported elsewhere."""
    disk = store_with({"RMQ_SYS_TRANS_HALF_TOPIC": [1]})
    for name in ("consumerOffset.json", "topicQueueMapping.json"):
        write(disk, f"config/{name}", b"\xff{]")
    assert reported(disk) == {}


def test_tags_are_taken_from_records_and_not_from_extension_units() -> None:
    """A unit whose tags code is an address in consumequeue_ext is made anew with the code of the record's tags."""
    disk = SimDisk()
    store = open_store(disk)
    topic = store.create_topic("t", 1)
    store.append([Put(topic, 0, b"x", b"TAGS\x01TagA\x02", b"TagA")], born_ms=1, born_host=bytes(8))
    store.close()
    path = f"{ROOT}/consumequeue/t/0/{0:020d}"
    physical, size, _ = UNIT.unpack(disk.open(path).read(0, UNIT.size))
    disk.open(path).write(0, [UNIT.pack(physical, size, -(1 << 31) - 77)])
    write(disk, "consumequeue_ext/t/0/00000000000000000000", bytes(64))
    for name in disk.list(f"{ROOT}/pyddmq"):
        disk.remove(f"{ROOT}/pyddmq/{name}")
    store = open_store(disk)
    assert store.topics["t"].queues[0].read(0, 1) == [(physical, size, tags_code(b"TagA"))]
    store.close()


@pytest.mark.parametrize("length", [128, 200, 255])
def test_long_topic_names_are_read_and_not_written(length: int) -> None:
    """RocketMQ's V2 records have topics of up to 255 bytes, as a folder takes; they are served, none is added."""
    disk = store_with({"t": [1]})
    end = open_store(disk)
    at = end.end
    end.close()
    name, body = b"%RETRY%" + b"g" * (length - 7), b"retried"
    tail = struct.pack(">h", length) + name + struct.pack(">h", 0)
    head = HEADER.pack(
        HEADER_BYTES + len(body) + len(tail), MAGIC_V2, crc32(body) & 0x7FFFFFFF,
        0, 0, 0, at, 0, NOW_MS, bytes(8), NOW_MS, bytes(8), 0, 0, len(body),
    )  # fmt: skip
    disk.open(f"{ROOT}/commitlog/{0:020d}").write(at, [head + body + tail])
    store = open_store(disk)
    topic = store.topics[name.decode()]
    [(physical, size, _)] = topic.queues[0].read(0, 9)
    assert bytes(split(store.read(physical, size))[0]) == body
    with pytest.raises(MessageRefused, match="can only be read"):
        store.append([Put(topic, 0, b"x", b"")], born_ms=1, born_host=bytes(8))
    store.close()


def test_check_of_a_store_names_what_is_foreign() -> None:
    """A note where all is served, damage where a node would not start."""
    disk = store_with({"t": [1]})
    write(disk, "config/topicQueueMapping.json", '{"topicQueueMappingInfoMap":{"t":{}}}')
    write(disk, "consumequeue/CURRENT", "MANIFEST-000004\n")
    found = {
        finding.file: finding.severity
        for finding in StoreCheck(ROOT, disk, ManualClock()).run()
        if finding.kind == "foreign"
    }
    assert found == {"config/topicQueueMapping.json": Severity.NOTE, "consumequeue": Severity.DAMAGE}
