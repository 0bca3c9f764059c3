"""Committed offsets."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import pytest

from broker.errors import StoreUnreadable
from broker.queues.offsets import ConsumerOffsets
from pyddmq.testing import ManualClock, PowerCut, SimDisk

PATH = "/s/config/consumerOffset.json"


def offsets_on(disk: SimDisk) -> ConsumerOffsets:
    """Open the table."""
    return ConsumerOffsets.open("/s", disk=disk, clock=ManualClock(77_000))


def test_offsets_survive_in_rocketmqs_shape() -> None:
    """topic@group, queue id, next offset to consume."""
    disk = SimDisk()
    offsets = offsets_on(disk)
    assert offsets.get("g", "t", 0) is None
    offsets.set("g", "t", 1, 7)
    offsets.set("g", "t", 0, 5)
    assert offsets.save()
    assert not offsets.save()
    file = disk.open(PATH)
    assert json.loads(file.read(0, file.size())) == {
        "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": 77_000},
        "offsetTable": {"t@g": {"0": 5, "1": 7}},
    }
    again = offsets_on(disk)
    assert list(again.items()) == [("g", "t", 0, 5), ("g", "t", 1, 7)]
    assert not again.changed_outside


def test_file_written_by_rocketmq_is_read_and_its_fields_kept() -> None:
    """Integer keys come without quotes; what is not ours stays."""
    disk = SimDisk()
    offsets_on(disk)
    version = b'{"counter":4,"stateVersion":1,"timestamp":9}'
    text = b'{"dataVersion":%b,"groupTopicMap":{},"offsetTable":{"t@g":{0:5,1:7}}}' % version
    disk.open(PATH, create=True).write(0, [text])
    offsets = offsets_on(disk)
    assert offsets.get("g", "t", 1) == 7
    offsets.set("g", "t", 1, 3)
    offsets.save()
    file = disk.open(PATH)
    content = json.loads(file.read(0, file.size()))
    assert content["groupTopicMap"] == {}
    assert content["dataVersion"] == {"counter": 5, "stateVersion": 1, "timestamp": 77_000}
    assert offsets_on(disk).get("g", "t", 1) == 3


def test_foreign_change_is_noticed() -> None:
    """A restore or mqadmin moved it: the file wins (D10)."""
    disk = SimDisk()
    offsets = offsets_on(disk)
    offsets.set("g", "t", 0, 5)
    offsets.save()
    file = disk.open(PATH)
    text = file.read(0, file.size()).replace(b'"0":5', b'"0":2')
    file.write(0, [text])
    again = offsets_on(disk)
    assert (again.changed_outside, again.get("g", "t", 0)) == (True, 2)


def test_failed_save_is_tried_again() -> None:
    """What could not be written stays to be written."""
    disk = SimDisk()
    offsets = offsets_on(disk)
    offsets.set("g", "t", 0, 5)
    disk.capacity_bytes = 0
    with pytest.raises(OSError, match="No space"):
        offsets.save()
    disk.capacity_bytes = None
    assert offsets.save()
    assert offsets_on(disk).get("g", "t", 0) == 5


@pytest.mark.parametrize("text", [b"[]", b'{"offsetTable":{"t@g":5}}', b'{"offsetTable":{"t@g":{"a":5}}}'])
def test_wrong_shape_gets_a_sentence(text: bytes) -> None:
    """A file of another kind is not taken for offsets."""
    disk = SimDisk()
    offsets_on(disk)
    disk.open(PATH, create=True).write(0, [text])
    with pytest.raises(StoreUnreadable, match="invalid structure"):
        offsets_on(disk)


def test_offset_below_zero_counts_as_zero() -> None:
    """Somebody's -2**60 must not become as many finished offsets."""
    disk = SimDisk()
    disk.make_folder("/store/config")
    file = disk.open("/store/config/consumerOffset.json", create=True)
    file.write(0, [b'{"offsetTable": {"orders@billing": {"0": -1152921504606846976}}}'])
    file.sync()
    assert ConsumerOffsets.open("/store", disk=disk, clock=ManualClock()).get("billing", "orders", 0) == 0


def parsed(disk: SimDisk, name: str) -> dict[str, Any]:
    """A file of the folder of settings."""
    file = disk.open(f"/s/config/{name}")
    found: dict[str, Any] = json.loads(file.read(0, file.size()))
    return found


def put(disk: SimDisk, name: str, content: dict[str, Any]) -> None:
    """Write such a file as RocketMQ would."""
    disk.make_folder("/s/config")
    file = disk.open(f"/s/config/{name}", create=True)
    file.truncate(0)
    file.write(0, [json.dumps(content).encode()])


def test_offsets_of_a_rocketmq_with_light_queues_are_read_and_written_back() -> None:
    """`enableLmq=true` keeps ordinary groups there; what only the older file has stays, and so do light queues."""
    disk = SimDisk()
    put(disk, "consumerOffset.json", {"offsetTable": {"t@g": {"0": 2, "1": 7}, "t@old": {"0": 4}}})
    light = {"%LMQ%a@%LMQ%g": 12}
    put(disk, "lmqConsumerOffset.json", {"offsetTable": {"t@g": {"0": 5}}, "lmqOffsetTable": light})
    offsets = offsets_on(disk)
    assert sorted(offsets.items()) == [("g", "t", 0, 5), ("g", "t", 1, 7), ("old", "t", 0, 4)]
    offsets.set("g", "t", 0, 6)
    assert offsets.save()
    assert parsed(disk, "lmqConsumerOffset.json")["lmqOffsetTable"] == light
    expected = {"t@g": {"0": 6, "1": 7}, "t@old": {"0": 4}}
    assert parsed(disk, "lmqConsumerOffset.json")["offsetTable"] == expected
    assert parsed(disk, "consumerOffset.json")["offsetTable"] == expected
    assert "lmqOffsetTable" not in parsed(disk, "consumerOffset.json")
    # RocketMQ goes on in its file: that one wins the next time, and ours where it did not.
    put(disk, "lmqConsumerOffset.json", {**parsed(disk, "lmqConsumerOffset.json"), "offsetTable": {"t@g": {"0": 9}}})
    again = offsets_on(disk)
    assert again.changed_outside
    assert again.get("g", "t", 0) == 9
    assert again.save()
    assert offsets_on(disk).get("g", "t", 0) == 9
    put(disk, "consumerOffset.json", {"offsetTable": {"t@g": {"0": 3}}})
    assert offsets_on(disk).get("g", "t", 0) == 3


@pytest.mark.parametrize(("own_ms", "lmq_ms", "expected"), [(1, 2, 5), (2, 1, 8), (0, 0, 5)])
def test_of_two_files_of_rocketmq_the_later_one_is_taken(own_ms: int, lmq_ms: int, expected: int) -> None:
    """By the time in `dataVersion`; without one, that of the light queues."""
    disk = SimDisk()
    for name, offset, ms in (("consumerOffset", 8, own_ms), ("lmqConsumerOffset", 5, lmq_ms)):
        version = {"dataVersion": {"counter": 1, "timestamp": ms}} if ms else {}
        put(disk, f"{name}.json", {"offsetTable": {"t@g": {"0": offset}}, **version})
    assert offsets_on(disk).get("g", "t", 0) == expected


@pytest.mark.parametrize(("own_ms", "lmq_ms", "expected"), [(1, 2, 5), (2, 1, 8)])
@pytest.mark.parametrize("changes", range(40))
def test_stop_during_the_first_write_brings_no_older_offsets(
    own_ms: int, lmq_ms: int, expected: int, changes: int
) -> None:
    """At every change of the disk: the taken offsets or the new ones, and never those of the file that lost."""
    disk = SimDisk()
    for name, offset, ms in (("consumerOffset", 8, own_ms), ("lmqConsumerOffset", 5, lmq_ms)):
        version = {"counter": 1, "timestamp": ms}
        put(disk, f"{name}.json", {"offsetTable": {"t@g": {"0": offset}}, "dataVersion": version})
    offsets = offsets_on(disk)
    offsets.set("g", "t", 0, 20)
    disk.stop_after(changes)
    with contextlib.suppress(PowerCut):
        offsets.save()
    disk.kill()
    assert offsets_on(disk).get("g", "t", 0) in (expected, 20)
