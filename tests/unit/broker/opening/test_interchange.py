"""Sizes of stores, ours and RocketMQ's, and the broker.conf that goes with them."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest

from broker.errors import StoreFormatNewer, StoreGeometryDiffers, StoreUnreadable
from broker.opening.reading import geometry_of
from broker.opening.store_json import Geometry
from broker.options import StoreOptions
from broker.runtime.sealed_file import SealedFile
from broker.tools.interchange import adopted, broker_conf, broker_settings, timer_log_bytes_of
from pyddmq.testing import SimDisk
from tests.integration.store_tools import ROOT, append, bodies, open_store

DEFAULT = StoreOptions()


def foreign_store() -> SimDisk:
    """A disk with a store as RocketMQ leaves it: nothing of ours, other queue file and index sizes."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    append(store, b"one", b"two")
    store.close()
    for name in disk.list(f"{ROOT}/pyddmq"):
        disk.remove(f"{ROOT}/pyddmq/{name}")
    for name in disk.list(f"{ROOT}/index"):
        disk.remove(f"{ROOT}/index/{name}")
    for path, size in ((f"{ROOT}/index/20261121125300123", 40 + 84 * 50), (f"{ROOT}/consumequeue/t/0/{0:020d}", 6000)):
        file = disk.open(path, create=True)
        file.truncate(size)
        file.close()
    return disk


def test_store_of_ours_tells_its_sizes() -> None:
    """What `pyddmq/store.json` says, whatever the options are."""
    disk = SimDisk()
    open_store(disk, index_slots=77, index_entries=99).close()
    expected = Geometry(segment_bytes=4096, queue_file_units=8, index_slots=77, index_entries=99)
    assert geometry_of(ROOT, disk=disk) == expected
    assert asdict(expected).items() <= asdict(adopted(ROOT, DEFAULT, disk=disk)).items()


def test_folder_without_store_has_no_sizes() -> None:
    """Options stay as they are, and nothing is made."""
    disk = SimDisk()
    assert geometry_of(ROOT, disk=disk) is None
    assert adopted(ROOT, DEFAULT, disk=disk) is DEFAULT
    assert not disk.exists(ROOT)


def test_store_of_rocketmq_tells_its_sizes_by_its_files() -> None:
    """Segments, queue files and index files have RocketMQ's configured sizes."""
    expected = Geometry(segment_bytes=4096, queue_file_units=300, index_slots=50, index_entries=200)
    assert geometry_of(ROOT, disk=foreign_store()) == expected


def test_sizes_without_a_file_are_the_options() -> None:
    """A store without queues and index takes the sizes that are asked for; a strange index size is not believed."""
    disk = foreign_store()
    disk.remove(f"{ROOT}/consumequeue/t/0/{0:020d}")
    disk.open(f"{ROOT}/index/20261121125300123").truncate(1000)
    options = replace(DEFAULT, queue_file_units=70, index_slots=5, index_entries=20)
    assert geometry_of(ROOT, disk=disk, default=options) == Geometry(
        segment_bytes=4096, queue_file_units=70, index_slots=5, index_entries=20
    )


def test_store_of_rocketmq_opens_with_adopted_sizes() -> None:
    """With other options it is refused by both sizes; adopted, it opens and stays as it was laid out."""
    disk = foreign_store()
    with pytest.raises(StoreGeometryDiffers, match="segment_bytes 4096"):
        open_store(disk, segment_bytes=8192)
    options = adopted(ROOT, DEFAULT, disk=disk)
    store = open_store(disk, **asdict(options))
    assert bodies(store) == {0: b"one", 1: b"two"}
    store.close()
    assert disk.open(f"{ROOT}/consumequeue/t/0/{0:020d}").size() == 300 * 20


def test_newer_and_damaged_stores_are_refused() -> None:
    """Nothing is guessed where the store itself says that it cannot be known."""
    disk = SimDisk()
    open_store(disk).close()
    path = f"{ROOT}/pyddmq/store.json"
    disk.flip_bit(path, 40)
    with pytest.raises(StoreUnreadable, match="checksum"):
        geometry_of(ROOT, disk=disk)
    SealedFile(disk, path).save({"format": 99})
    with pytest.raises(StoreFormatNewer):
        geometry_of(ROOT, disk=disk)


def test_broker_settings_carry_every_size() -> None:
    """RocketMQ names file sizes in bytes and index sizes in entries."""
    sizes = Geometry(segment_bytes=4096, queue_file_units=30, index_slots=5, index_entries=20)
    settings = broker_settings("/data/store", sizes, message_bytes_max=1000)
    wanted = {
        "storePathRootDir": "/data/store",
        "storePathCommitLog": "/data/store/commitlog",
        "mappedFileSizeCommitLog": "4096",
        "mappedFileSizeConsumeQueue": "600",
        "maxHashSlotNum": "5",
        "maxIndexNum": "20",
        "maxMessageSize": "1000",
    }
    assert wanted.items() <= settings.items()
    assert {"mappedFileSizeTimerLog": "104857600", "timerPrecisionMs": "1000"}.items() <= settings.items()


def test_broker_settings_carry_the_size_of_timer_log_files() -> None:
    """RocketMQ does not start on timer-log files of another size; a store without any gets RocketMQ's."""
    disk = SimDisk()
    assert timer_log_bytes_of(ROOT, disk=disk) == 100 << 20
    for name in (f"{0:020}", f"{120:020}"):
        disk.make_folder(f"{ROOT}/timerlog")
        disk.open(f"{ROOT}/timerlog/{name}", create=True).truncate(120)
    sizes = Geometry(segment_bytes=4096, queue_file_units=30, index_slots=5, index_entries=20)
    timer_log_bytes = timer_log_bytes_of(ROOT, disk=disk)
    settings = broker_settings(ROOT, sizes, message_bytes_max=1000, timer_log_bytes=timer_log_bytes)
    assert settings["mappedFileSizeTimerLog"] == "120"


def test_broker_conf_is_a_java_properties_file() -> None:
    """Backslashes and what is not ASCII are escaped; a line break in a path cannot be and is refused."""
    assert broker_conf({"a": "1", "path": "/d\\é😀"}) == "a = 1\npath = /d\\\\\\u00e9\\ud83d\\ude00\n"
    with pytest.raises(StoreUnreadable, match="line break"):
        broker_conf({"path": "/a\nb"})
