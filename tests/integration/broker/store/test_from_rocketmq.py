"""What a store has that a RocketMQ had open in between: topics it deleted, its index files, two unique keys, names."""

from __future__ import annotations

import json
from random import Random
from typing import Any

from broker.format.properties import find_property, parse_properties
from broker.log.put import Put
from broker.query import by_key, by_unique_key
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import SealedFile
from broker.runtime.steps import noted, run_now
from broker.store import Store
from broker.tools.interchange import names_of
from broker.tools.readonly import ReadOnlyStore
from conf import NodeConfig
from proxy.node.assembly import opening_store
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.damage import check, mend
from tests.integration.store_tools import HOST, ROOT, SMALL, append, bodies, open_store

TOPICS = f"{ROOT}/config/topics.json"


def rewrite_topics(disk: SimDisk, change: Any) -> None:
    """Change `topics.json` as RocketMQ does, which knows no twin."""
    file = disk.open(TOPICS)
    content = json.loads(file.read(0, file.size()))
    change(content["topicConfigTable"])
    data = json.dumps(content, indent=1).encode()
    file.truncate(0)
    file.write(0, [data])
    file.sync()


def filled(disk: SimDisk) -> Store:
    """Two topics, one with more than one queue file."""
    store = open_store(disk)
    for topic in ("t", "kept"):
        store.create_topic(topic, 2)
        for number in range(20):
            append(store, b"%d" % number, topic=topic, queue_id=number % 2)
    store.flush()
    return store


def test_topic_deleted_there_does_not_come_back_here() -> None:
    """Neither from the checkpoint nor from the log; made again it goes on behind the offsets that it had."""
    for removed in ([], ["pyddmq/checkpoint.json"], ["pyddmq/checkpoint.json", "pyddmq/topics.json"]):
        disk = SimDisk()
        filled(disk).close()
        for name in removed:
            disk.remove(f"{ROOT}/{name}")
        rewrite_topics(disk, lambda table: table.pop("t"))
        assert "t" not in ReadOnlyStore.open(ROOT, disk=disk, clock=ManualClock()).topics
        assert "topic_unknown" not in [finding.kind for finding in check(disk)]
        store = open_store(disk)
        for _ in range(2):
            assert "t" not in store.topics
            assert len(bodies(store, "kept")) == 10
            disk.kill()
            disk.remove(f"{ROOT}/pyddmq/checkpoint.json")
            store = open_store(disk)
        store.create_topic("t", 2)
        assert [append(store, b"new", queue_id=queue)[0].offset for queue in range(2)] == [16, 16]
        store.close()
        assert bodies(open_store(disk)) == {16: b"new"}


def test_topic_that_only_the_log_knows_comes_back_where_nobody_else_wrote_the_file() -> None:
    """A lost or damaged file of our own says nothing of what was deleted."""
    disk = SimDisk()
    filled(disk).close()
    for name in ("config/topics.json", "config/topics.json.bak", "pyddmq/topics.json", "pyddmq/checkpoint.json"):
        if disk.exists(f"{ROOT}/{name}"):
            disk.remove(f"{ROOT}/{name}")
    assert len(bodies(open_store(disk))) == 10


def test_id_that_is_shown_finds_the_message_and_so_does_the_one_that_the_producer_was_told() -> None:
    """A member of a batch of RocketMQ's Java client has its own UNIQ_KEY, and then that of the batch."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    own, batch = b"A" * 32, b"B" * 32
    block = b"UNIQ_KEY\x01%b\x02KEYS\x01first\x02WAIT\x01true\x02UNIQ_KEY\x01%b\x02KEYS\x01k1 k2\x02" % (own, batch)
    assert find_property(block, b"UNIQ_KEY") == batch
    assert parse_properties(block)["UNIQ_KEY"] == batch.decode()
    for _ in range(2):
        put = Put(store.topics["t"], 0, b"member", block, unique_key=batch)
        store.append([put], born_ms=1, born_host=HOST)
        store.flush()
        while store.index.step():
            pass
        disk.kill()
        store = open_store(disk)
    for text in (own, batch):
        assert len(by_unique_key(store, "t", text.decode()).run().found) == 2
    assert [len(by_key(store, "t", word).run().found) for word in ("k1", "k2", "first")] == [2, 2, 0]
    store.close()
    assert not [finding for finding in check(disk) if finding.kind.startswith("index")]


def test_index_that_lacks_the_first_of_two_unique_keys_is_right() -> None:
    """RocketMQ indexes the last alone."""
    from broker.index.keys import keys_of, must_keys_of, unique_keys_of

    block = b"UNIQ_KEY\x01A\x02x\x01y\x02UNIQ_KEY\x01B\x02KEYS\x01k\x02"
    assert (keys_of(block), must_keys_of(block)) == ([b"B", b"A", b"k"], [b"B", b"k"])
    assert unique_keys_of(b"MY_UNIQ_KEY\x01A\x02") == []
    assert unique_keys_of(b"UNIQ_KEY\x01A\x02MY_UNIQ_KEY\x01B\x02") == [b"A"]


def test_index_files_of_another_size_are_used() -> None:
    """RocketMQ's default is 420,000,040 bytes, ours are smaller: such a file is searched as it is, not made anew."""
    disk, metrics = SimDisk(), Metrics()
    store = open_store(disk, index_slots=500, index_entries=2000)
    store.create_topic("t", 1)
    keys = [append(store, b"%d" % number)[0].unique_key for number in range(30)]
    store.flush()
    while store.index.step():
        pass
    store.close()
    names = disk.list(f"{ROOT}/index")
    disk.remove(f"{ROOT}/pyddmq/index.json")
    sizes = SealedFile(disk, f"{ROOT}/pyddmq/store.json")
    sizes.save({**sizes.load(), "index_slots": SMALL["index_slots"], "index_entries": SMALL["index_entries"]})
    assert not [finding for finding in check(disk) if finding.kind.startswith("index")]
    for seed in (2, 3):
        store = open_store(disk, metrics=metrics, seed=seed)
        assert [file.name for file in store.index.files][:1] == names
        for number, key in enumerate(keys):
            [found] = by_unique_key(store, "t", key.decode()).run().found
            assert found.offset == number
        append(store, b"more")
        store.close()
    assert metrics.value("pyddmq_store_index_rebuilt_total", "damaged") == 0
    assert disk.list(f"{ROOT}/index")[0] == names[0]
    assert not [finding for finding in check(disk) if finding.kind.startswith("index")]


def test_node_takes_the_index_size_of_the_store_that_is_there() -> None:
    """So that RocketMQ finds one size afterwards; its configuration has none of ours."""
    disk = SimDisk()
    store = open_store(disk, segment_bytes=1 << 16, queue_file_units=10, index_slots=500, index_entries=2000)
    store.create_topic("t", 1)
    append(store, b"x")
    store.flush()
    store.index.step()
    store.close()
    for name in disk.list(f"{ROOT}/pyddmq"):
        disk.remove(f"{ROOT}/pyddmq/{name}")
    node = NodeConfig(data=ROOT, segment_bytes=1 << 16, queue_file_units=10)
    clock = ManualClock()
    store = run_now(noted(opening_store(node, runtime_of(disk, clock, random=Random(1)), None), lambda _: None))
    assert (store.options.index_slots, store.options.index_entries) == (500, 2000)
    store.close()


def test_cluster_and_broker_have_the_names_that_rocketmq_gave_them() -> None:
    """Its own topics are named after them; a store that none had open has ours."""
    disk = SimDisk()
    filled(disk).close()
    assert names_of(ROOT, disk=disk) == ("pyddmq", "broker-0")
    rewrite_topics(
        disk,
        lambda table: table.update({"rmq_sys_REVIVE_LOG_east": {}, "rmq_sys_SYNC_BROKER_MEMBER_broker-a": {}}),
    )
    assert names_of(ROOT, disk=disk) == ("east", "broker-a")
    rewrite_topics(disk, lambda table: table.update({"rmq_sys_REVIVE_LOG_a\nb": {}}))
    assert names_of(ROOT, disk=disk) == ("east", "broker-a")


def test_file_that_rocketmq_leaves_of_abort_is_known() -> None:
    """It is no finding, and repair leaves it."""
    disk = SimDisk()
    filled(disk).close()
    disk.open(f"{ROOT}/abort.bak", create=True).write(0, [b"1"])
    assert check(disk) == []
    mend(disk)
    assert disk.exists(f"{ROOT}/abort.bak")
