"""A store written here opens in a real RocketMQ, which serves every message by its own client."""

from __future__ import annotations

import itertools
import subprocess
import sys
from pathlib import Path

import pytest

from broker.queues.offsets import ConsumerOffsets
from broker.retention import RetentionLimits
from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from tests.interop.conftest import Surroundings
from tests.interop.contents import OPTIONS, QUEUES, TOPICS, open_store, permits, randoms, write_all
from tests.interop.sides import assert_rolled, assert_same, by_arrival, copied, settings_for

pytestmark = pytest.mark.long

RANDOM_MESSAGES = 1300
MESSAGES_UNTIL_KILLED = 1250


def test_closed_store_is_served_record_by_record(rocket: Surroundings) -> None:
    """Offsets, times, hosts, keys, tags, properties and bodies are those written; groups go on where they were."""
    root = rocket.folder / "store"
    sent = [*permits(), *itertools.islice(randoms(1), RANDOM_MESSAGES)]
    store = open_store(root)
    write_all(store, sent)
    store.close()
    offsets = ConsumerOffsets.open(str(root), disk=RealDisk(), clock=SystemClock())
    for queue_id in range(QUEUES):
        offsets.set("permits-audit", "permits", queue_id, 10 + queue_id)
    offsets.save()
    copy = copied(root)
    with rocket.broker("broker", settings_for(copy)), rocket.client() as client:
        served = assert_same(client, root)
        found = [
            client.ask(do="offset", group="permits-audit", topic="permits", queue=queue_id)[0]["offset"]
            for queue_id in range(QUEUES)
        ]
    assert by_arrival(served) == sent
    assert_rolled(served, OPTIONS.segment_bytes)
    assert found == [10, 11, 12, 13]


def test_store_whose_old_log_files_went_is_served(rocket: Surroundings) -> None:
    """After retention RocketMQ finds the same first and last offset in every queue, and every record that is kept."""
    root = rocket.folder / "store"
    sent = [*permits(), *itertools.islice(randoms(1), RANDOM_MESSAGES)]
    store = open_store(root)
    write_all(store, sent)
    store.close()
    store = open_store(root)
    files = store.retention.log_bytes
    store.retention.limits = RetentionLimits(log_bytes=files // 2)
    while store.retention.step():
        store.checkpoint()
    assert 0 < store.retention.log_bytes <= files // 2
    store.close()
    copy = copied(root)
    with rocket.broker("broker", settings_for(copy)), rocket.client() as client:
        served = assert_same(client, root)
    assert by_arrival(served) == sent[-len(served) :]
    assert 0 < len(served) < len(sent)


@pytest.mark.parametrize("seed", [1, 2])
def test_store_of_a_killed_process_is_served(rocket: Surroundings, seed: int) -> None:
    """RocketMQ recovers what SIGKILL left, with every acknowledged message in it, and we read the same from it."""
    root = rocket.folder / "store"
    acknowledged = written_until_killed(root, seed, MESSAGES_UNTIL_KILLED)
    assert (root / "abort").exists()
    copy = copied(root)
    with rocket.broker("broker", settings_for(copy)), rocket.client() as client:
        served = assert_same(client, root, TOPICS[1:])
    assert len(served) >= acknowledged
    assert_rolled(served, OPTIONS.segment_bytes)
    assert by_arrival(served) == list(itertools.islice(randoms(seed), len(served)))


def written_until_killed(root: Path, seed: int, count: int) -> int:
    """Run a writer and kill it once it has acknowledged `count` messages; returns how many it has."""
    command = [sys.executable, "-m", "tests.interop.writer", str(root), str(seed)]
    acknowledged = 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            acknowledged = int(line)
            if acknowledged >= count:
                break
        process.kill()
        # What it said between its last line and its end counts as well.
        for line in process.stdout:
            if line.endswith("\n"):
                acknowledged = int(line)
    assert acknowledged >= count
    return acknowledged
