"""Committed offsets."""

from __future__ import annotations

import json

import pytest

from broker.errors import StoreUnreadable
from broker.queues.offsets import ConsumerOffsets
from pyddmq.testing import ManualClock, SimDisk

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
    with pytest.raises(StoreUnreadable, match="wrong shape"):
        offsets_on(disk)


def test_offset_below_zero_counts_as_zero() -> None:
    """Somebody's -2**60 must not become as many finished offsets."""
    disk = SimDisk()
    disk.make_folder("/store/config")
    file = disk.open("/store/config/consumerOffset.json", create=True)
    file.write(0, [b'{"offsetTable": {"orders@billing": {"0": -1152921504606846976}}}'])
    file.sync()
    assert ConsumerOffsets.open("/store", disk=disk, clock=ManualClock()).get("billing", "orders", 0) == 0
