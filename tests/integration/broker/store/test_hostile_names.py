"""Names in a data directory are what somebody wrote: none becomes a path before it is known to be a topic's name."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.errors import StoreError, StoreUnreadable
from broker.opening.reading import geometry_of
from broker.queues.offsets import ConsumerOffsets
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import SealedFile, sealed
from broker.runtime.store_metrics import FILES_DAMAGED
from broker.tools.check import Severity, StoreCheck
from broker.tools.readonly import ReadOnlyStore
from pyddmq.testing import ManualClock, SimDisk
from tests.fuzz.image import disk_of, image_of, put
from tests.integration.store_tools import ROOT, bodies, open_store
from upstream.progress.finished_marks import FinishedMarks
from upstream.progress.journal_format import JournalDamaged, TrackerEntry, decode, encode_tracker
from upstream.tools.backup import MANIFEST, Backup, BackupError, restore
from upstream.tools.store_check import check_data

NAMES = ["../outside", "..", ".", "a/b", "/etc", "", "a\0b", "a b", "ü", "n" * 256, "consumequeue/../../outside"]
VICTIM = "/outside/0/00000000000000000000"


def files() -> dict[str, bytes]:
    """Return the files of a store with a topic and a message, and one of somebody else's beside it."""
    disk = SimDisk()
    store = open_store(disk)
    store.create_topic("t", 1)
    store.put("t", b"kept")
    store.close()
    return {**image_of(disk, ROOT), VICTIM: b"somebody else's"}


def in_topics(found: dict[str, bytes], name: str) -> None:
    """Have the topic file name a topic, and no twin that knows better."""
    table = json.loads(found[f"{ROOT}/config/topics.json"])
    table["topicConfigTable"][name] = {"topicName": name, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
    found[f"{ROOT}/config/topics.json"] = json.dumps(table).encode()
    del found[f"{ROOT}/pyddmq/topics.json"]


def in_twin(found: dict[str, bytes], name: str) -> None:
    """Have the twin of the topic file name it, and the file be gone."""
    in_topics(found, name)
    text = found.pop(f"{ROOT}/config/topics.json").decode()
    found[f"{ROOT}/pyddmq/topics.json"] = sealed({"crc32": "0", "previous": "", "text": text})


def in_backup(found: dict[str, bytes], name: str) -> None:
    """Have the version before name it, and the file be damaged."""
    in_topics(found, name)
    found[f"{ROOT}/config/topics.json.bak"] = found[f"{ROOT}/config/topics.json"]
    found[f"{ROOT}/config/topics.json"] = b"{"


def in_lives(found: dict[str, bytes], name: str) -> None:
    """Have a deletion of it be unfinished."""
    life = {"deleted": True, "served": False, "begins_at": 0, "bases": [1]}
    found[f"{ROOT}/pyddmq/topic_lives.json"] = sealed({name: life})


PLACES = [in_topics, in_twin, in_backup, in_lives]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", PLACES)
def test_name_that_no_topic_can_have_is_refused(place: Callable[[dict[str, bytes], str], None], name: str) -> None:
    """By an opening, by a reader and by a restore, with the file and the name; not a byte changes. A check tells it."""
    found = files()
    place(found, name)
    disk = disk_of(found)
    for refused in (
        lambda: open_store(disk),
        lambda: ReadOnlyStore.open(ROOT, disk=disk, clock=ManualClock()),
    ):
        with pytest.raises(StoreUnreadable, match="topic") as reported:
            refused()
        assert repr(name[:100])[1:-1] in str(reported.value)
        assert ".json" in str(reported.value)
    assert {**image_of(disk, ROOT), **image_of(disk, "/outside")} == found
    findings = list(check_data(StoreCheck(ROOT, disk, ManualClock())))
    assert [each for each in findings if each.severity is Severity.DAMAGE and repr(name[:100])[1:-1] in each.text]


@pytest.mark.parametrize("name", ["../outside", "a/b", "a\0b"])
@pytest.mark.parametrize("place", PLACES)
def test_crafted_backup_is_refused_and_changes_nothing(
    place: Callable[[dict[str, bytes], str], None], name: str
) -> None:
    """Every sum in it is right."""
    found = files()
    place(found, name)
    disk = with_manifest(found)
    with pytest.raises(BackupError, match="topic"):
        restore("/copy", "/back", disk=disk, clock=ManualClock())
    assert not disk.exists("/back")


def with_manifest(found: dict[str, bytes], changes: dict[str, Any] | None = None) -> SimDisk:
    """A disk with a backup of these files whose manifest is right."""
    copied = {path.removeprefix(f"{ROOT}/"): data for path, data in found.items() if path.startswith(ROOT)}
    lines: dict[str, Any] = {
        path: {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()} for path, data in copied.items()
    }
    lines.update(changes or {})
    disk = disk_of({f"/copy/{path}": data for path, data in copied.items()})
    manifest = {"format": 1, "source": ROOT, "startedMs": 1, "finishedMs": 2, "logEnd": 0, "files": lines}
    put(disk, f"/copy/{MANIFEST}", json.dumps(manifest).encode())
    return disk


LINE = {"bytes": 1, "sha256": hashlib.sha256(b"x").hexdigest()}


@pytest.mark.parametrize(
    "lines",
    [
        {"../outside": LINE},
        {"/etc/passwd": LINE},
        {"config/../../x": LINE},
        {"a\0b": LINE},
        {"config//x": LINE},
        {"./config/x": LINE},
        {"": LINE},
        {"consumequeue/t/../x": LINE},
        {"abort": {"bytes": -1, "sha256": "0"}},
        {"abort": {"bytes": "1", "sha256": 7}},
        {"abort": []},
        {"abort": None},
    ],
)
def test_manifest_of_any_shape_is_refused(lines: dict[str, Any]) -> None:
    """Paths out of the folder and values of a wrong kind; nothing is written."""
    disk = with_manifest(files(), lines)
    with pytest.raises(BackupError, match=r"backup\.json"):
        restore("/copy", "/back", disk=disk, clock=ManualClock())
    assert not disk.exists("/back")


@pytest.mark.parametrize("where", ["config/topics.json", "config", "commitlog/00000000000000000000"])
def test_symbolic_link_in_a_backup_is_refused(tmp_path: Path, where: str) -> None:
    """Also one that leads to right bytes: a copy has none, and what it leads to may be anything."""
    disk = RealDisk()
    store = open_store(disk, root=str(tmp_path / "data"))
    store.create_topic("t", 1)
    store.put("t", b"kept")
    store.close()
    copy = tmp_path / "copy"
    Backup(str(tmp_path / "data"), str(copy), source=disk, disk=disk, clock=ManualClock()).make()
    (copy / where).rename(tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", copy / where)
    with pytest.raises(BackupError, match="symbolic link"):
        restore(str(copy), str(tmp_path / "back"), disk=disk, clock=ManualClock())
    assert not (tmp_path / "back").exists()


def test_backup_that_is_a_link_itself_can_be_restored(tmp_path: Path) -> None:
    """Which folder is the backup is the operator's word."""
    disk = RealDisk()
    store = open_store(disk, root=str(tmp_path / "data"))
    store.create_topic("t", 1)
    store.put("t", b"kept")
    store.close()
    Backup(str(tmp_path / "data"), str(tmp_path / "copy"), source=disk, disk=disk, clock=ManualClock()).make()
    os.symlink(tmp_path / "copy", tmp_path / "link")
    restore(str(tmp_path / "link"), str(tmp_path / "back"), disk=disk, clock=ManualClock())
    again = open_store(disk, root=str(tmp_path / "back"))
    assert bodies(again) == {0: b"kept"}
    again.close()


@pytest.mark.parametrize(
    "queues", [{"../outside": [[0, 1]]}, {"t": [[0, -1]]}, {"t": [0]}, {"t": "x"}, [], {"t": [[0, 1 << 60]]}]
)
def test_checkpoint_of_any_shape_is_none(queues: Any) -> None:
    """Under a right sum; the whole log is read then."""
    found = files()
    path = f"{ROOT}/pyddmq/checkpoint.json"
    found[path] = sealed({**json.loads(found[path])["data"], "queues": queues})
    disk = disk_of(found)
    metrics = Metrics()
    store = open_store(disk, metrics=metrics)
    assert bodies(store) == {0: b"kept"}
    assert set(store.topics) == {"t"}
    assert store.recovery.whole_log == "the checkpoint is missing"
    assert metrics.value(FILES_DAMAGED, "pyddmq/checkpoint.json") == 1


@pytest.mark.parametrize("content", [[], {"topicConfigTable": []}, {"topicConfigTable": {"t": 7}}, 7, "x"])
def test_topic_file_of_any_shape_is_refused_with_a_sentence(content: Any) -> None:
    """JSON that is not a table of topics."""
    found = files()
    for path in ("pyddmq/topics.json", "config/topics.json.bak"):
        found.pop(f"{ROOT}/{path}", None)
    found[f"{ROOT}/config/topics.json"] = json.dumps(content).encode()
    with pytest.raises(StoreUnreadable, match=r"topics\.json"):
        open_store(disk_of(found))


@pytest.mark.parametrize("content", [[], {"format": "1"}, {"format": 1}, {"format": 1, "segment_bytes": "x"}, 7])
def test_sizes_of_any_shape_are_refused_with_a_sentence(content: Any) -> None:
    """Under a right sum."""
    found = files()
    found[f"{ROOT}/pyddmq/store.json"] = sealed(content)
    disk = disk_of(found)
    with pytest.raises(StoreError, match=r"store\.json"):
        open_store(disk)
    with pytest.raises(StoreError, match=r"store\.json"):
        geometry_of(ROOT, disk=disk)


def test_offsets_of_names_that_nobody_can_have_are_kept_and_not_used() -> None:
    """RocketMQ's file may have them (its light queues); they go back as they were."""
    disk = SimDisk()
    table = {"t@g": {"0": 5}, "../x@g": {"0": 6}, "t@../g": {"0": 7}, "%LMQ%a/b@c": {"0": 8}, "odd": {"0": 9}}
    put(disk, f"{ROOT}/config/consumerOffset.json", json.dumps({"offsetTable": table}).encode())
    offsets = ConsumerOffsets.open(ROOT, disk=disk, clock=ManualClock(), metrics=Metrics())
    assert list(offsets.items()) == [("g", "t", 0, 5)]
    offsets.set("g", "t", 0, 6)
    assert offsets.save()
    kept = json.loads(image_of(disk, ROOT)[f"{ROOT}/config/consumerOffset.json"])["offsetTable"]
    assert kept == {**table, "t@g": {"0": 6}}


@pytest.mark.parametrize(("group", "topic"), [("../g", "t"), ("g", "../t"), ("g", "a/b"), ("", "t"), ("g", "\0")])
def test_journal_with_such_a_name_is_unreadable(group: str, topic: str) -> None:
    """A block of it, whose sum is right."""
    entry = TrackerEntry(1, group, topic, 0, 0, -1, -1, (), FinishedMarks())
    with pytest.raises(JournalDamaged, match="name"):
        list(decode(memoryview(encode_tracker(entry))))


def test_number_that_is_no_ascii_names_no_file() -> None:
    """Files with digits of other scripts in their names are somebody else's; int() does not take all of them."""
    found = files()
    for name in ("²", "٣", "00000000000000000²0"):
        for folder in ("commitlog", "consumequeue/t/0", "consumequeue/t", "timerlog", "index", "pyddmq/acks"):
            found[f"{ROOT}/{folder}/{name}"] = b"x"
        found[f"{ROOT}/pyddmq/acks/{name}.acks"] = b"x"
    disk = disk_of(found)
    assert geometry_of(ROOT, disk=disk) is not None
    list(check_data(StoreCheck(ROOT, disk, ManualClock())))
    store = open_store(disk)
    assert bodies(store) == {0: b"kept"}
    store.topic_changes.delete("t")
    store.close()
    assert SealedFile(disk, f"{ROOT}/pyddmq/topic_lives.json").load()["t"]["deleted"]
