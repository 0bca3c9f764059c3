"""Target `directory`: the whole data directory is somebody else's when it is opened, checked, mended and restored.

An input is a row of edits of the data directory of a node that was killed: a file that is there, or any path, gets
other bytes, which may be sealed with a right sum first, put into a record with a right sum, or become a topic file that
has no twin. Then a node starts on it, a reader opens it, a check looks at it, a repair mends it, a backup copies it and
is restored; and a backup of the directory as it is, under a manifest with right sums, is restored.

Whatever stands there: nothing outside of the directory (or of the restore's target) is touched, read or looked for, no
path has a part `..` or a NUL, and each of them ends well or with a StoreError that has a sentence.
"""

from __future__ import annotations

import functools
import hashlib
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

from broker.errors import StoreError
from broker.format.record import CRC_BYTES, crc_property
from broker.runtime.file_writes import at_once
from broker.runtime.sealed_file import sealed
from broker.runtime.sums import crc32
from broker.tools.check import StoreCheck
from broker.tools.readonly import ReadOnlyStore
from proxy.cli.store.store_check_command import repair_data
from pyddmq.testing import ManualClock, SimDisk
from pyddmq.testing.sim_disk import SimFile
from tests.fuzz.image import Image, disk_of, image_of
from tests.fuzz.store_files import be_a_sentence
from tests.hostile.sim import HostileWorld
from tests.insides import opened_of
from upstream.tools.backup import FORMAT_VERSION, MANIFEST, Backup, restore
from upstream.tools.store_check import check_data

ROOT, COPY, BACK = "./data", "/copy", "/back"
OUTSIDE = "/outside/0/00000000000000000000"
YAML = """
node: {segmentBytes: 131072, queueFileUnits: 60, ackSegmentBytes: 65536, producerPort: 9613, consumerPort: 9713,
       maxMessageBytes: 4096}
topics:
  orders: {queues: 2}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], orderKey: KEY, timeout: 600000, maxRetry: 1}
"""
RAW, SEALED, RECORD, TOPICS, REMOVED, MANIFEST_LINE = range(6)
_EDITS_MAX = 8
_RECORD_AT = struct.Struct(">ii")


class Edit(NamedTuple):
    """One change of the directory: what kind, the path below it, and bytes."""

    kind: int
    path: str
    content: bytes


class Fence(SimDisk):
    """A disk on which whatever leaves the folders that it was made for ends the test."""

    def __init__(self, image: Mapping[str, bytes]) -> None:
        super().__init__()
        self.inside: tuple[str, ...] = ("",)
        made = disk_of(image)
        self.__dict__.update(made.__dict__)
        self.inside = (ROOT, COPY, BACK)

    def _look(self, path: str) -> None:
        parts = path.split("/")
        assert ".." not in parts, f"{path!r} leads up"
        assert "\0" not in path, f"{path!r} has a NUL"
        assert path in ("", "/") or any(path == each or path.startswith(f"{each}/") for each in self.inside), (
            f"{path!r} is outside"
        )
        assert all(len(part.encode("utf-8", "surrogatepass")) <= 255 for part in parts), f"{path!r} is no file's name"

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Open a file inside."""
        self._look(path)
        return super().open(path, create=create)

    def exists(self, path: str) -> bool:
        """Look for a file inside."""
        self._look(path)
        return super().exists(path)

    def list(self, path: str) -> list[str]:
        """List a folder inside."""
        self._look(path)
        return super().list(path)

    def make_folder(self, path: str, *, durable: bool = True) -> None:
        """Make a folder inside."""
        self._look(path)
        super().make_folder(path)

    def replace(self, source: str, target: str) -> None:
        """Rename inside."""
        self._look(source)
        self._look(target)
        super().replace(source, target)

    def remove(self, path: str) -> None:
        """Delete inside."""
        self._look(path)
        super().remove(path)

    def sync_folder(self, path: str) -> None:
        """Sync a folder inside."""
        self._look(path)
        super().sync_folder(path)


@functools.cache
def image() -> Image:
    """Return the files of a node that was killed: messages, one that waits, a pause, a deleted topic."""
    disk = SimDisk()
    world = HostileWorld(YAML, disk=disk)
    store = opened_of(world.node).store
    for number in range(6):
        store.put("orders", b'{"id": %d}' % number, key=f"k{number}", tags="red")
    store.put("orders", b"level", delay_level=18)
    store.create_topic("gone", 1)
    store.put("gone", b"x")
    world.run(2.0)
    store.topic_changes.delete("gone")
    opened_of(world.node).progress.flush()
    at_once(disk, opened_of(world.node).pauses.pausing("billing", None, who="operator"))
    world.run(2.0)
    disk.kill()
    # What is made anew and large: an input must not cost megabytes.
    return {path: content for path, content in image_of(disk, ROOT).items() if "/index/" not in path}


def names() -> list[str]:
    """Paths of the image below its root, in their order."""
    return [path.removeprefix(f"{ROOT}/") for path in sorted(image())]


def directory(data: bytes) -> None:
    """Edit the directory, and do to it what operators do."""
    edits = list(edits_of(data))
    files = {path.removeprefix(f"{ROOT}/"): content for path, content in image().items()}
    extra: dict[str, Any] = {}
    for edit in edits:
        _make(files, extra, edit)
    local = {f"{ROOT}/{path}": content for path, content in files.items() if _can_be(path)}
    for work in (_check, _read, _mend, _start):
        _inside(local, work)
    _inside(local, _copy_and_restore)
    copied = {f"{COPY}/{path}": content for path, content in files.items() if _can_be(path)}
    lines: dict[str, Any] = {path: line_of(content) for path, content in files.items()} | extra
    manifest = {"format": FORMAT_VERSION, "files": lines}
    text = json.dumps(manifest).encode()
    _inside(copied | {f"{COPY}/{MANIFEST}": text}, lambda disk: restore(COPY, BACK, disk=disk, clock=ManualClock()))


def line_of(content: bytes) -> dict[str, Any]:
    """Return the line of a manifest for a file."""
    return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


def edits_of(data: bytes) -> Iterator[Edit]:
    """Read edits: kind, length of the path (0: a byte that counts the files there are), path, length, bytes."""
    at = 0
    for _ in range(_EDITS_MAX):
        if at + 2 > len(data):
            return
        kind, size = data[at] % 6, data[at + 1]
        at += 2
        if size:
            path = data[at : at + size].decode("utf-8", "replace")
            at += size
        else:
            path = names()[(data[at] if at < len(data) else 0) % len(names())]
            at += 1
        length = int.from_bytes(data[at : at + 2], "big")
        yield Edit(kind, path, data[at + 2 : at + 2 + length])
        at += 2 + length


def written(*edits: Edit) -> bytes:
    """Return the input that makes these edits."""
    parts = []
    for kind, path, content in edits:
        raw = path.encode()
        parts.append(bytes([kind, len(raw)]) + raw + len(content).to_bytes(2, "big") + content)
    return b"".join(parts)


def _can_be(path: str) -> bool:
    """Whether a file system can hold a file of that path below a folder; and the simulated one lists it."""
    parts = path.split("/")
    return "\0" not in path and all(part not in ("", ".", "..") and len(part.encode()) <= 255 for part in parts)


def _make(files: dict[str, bytes], extra: dict[str, Any], edit: Edit) -> None:
    kind, path, content = edit
    if kind == REMOVED:
        files.pop(path, None)
    elif kind == SEALED:
        try:
            files[path] = sealed(json.loads(content))
        except (ValueError, RecursionError):
            files[path] = content
    elif kind == RECORD:
        segment = bytearray(files.get("commitlog/00000000000000000000", b""))
        _put_record(segment, content)
        files["commitlog/00000000000000000000"] = bytes(segment)
    elif kind == TOPICS:
        files.pop("pyddmq/topics.json", None)
        files.pop("config/topics.json.bak", None)
        files["config/topics.json"] = content
    elif kind == MANIFEST_LINE:
        extra[path] = line_of(content)
    else:
        files[path] = content
    for each in [each for each in files if any(other.startswith(f"{each}/") for other in files)]:
        # What is a folder is no file.
        del files[each]


def _put_record(segment: bytearray, content: bytes) -> None:
    """Put bytes behind the last record, with their own place and a right sum, as far as they are long enough."""
    end = len(bytes(segment).rstrip(b"\0"))
    size = len(content) + CRC_BYTES
    if len(content) < 91 or end + size + 8 > len(segment):
        return
    record = bytearray(content)
    struct.pack_into(">i", record, 0, size)
    struct.pack_into(">q", record, 28, end)
    segment[end : end + size] = bytes(record) + crc_property(crc32(bytes(record)) & 0x7FFF_FFFF)


def _inside(files: Mapping[str, bytes], work: Callable[[Fence], object]) -> None:
    disk = Fence({**files, OUTSIDE: b"somebody else's"})
    try:
        work(disk)
    except StoreError as error:
        be_a_sentence(error)
    disk.inside = ("",)
    assert image_of(disk, "/outside") == {OUTSIDE: b"somebody else's"}


def _check(disk: Fence) -> None:
    list(check_data(StoreCheck(ROOT, disk, ManualClock())))


def _read(disk: Fence) -> None:
    store = ReadOnlyStore.open(ROOT, disk=disk, clock=ManualClock())
    for topic in store.topics.values():
        for queue in topic.queues:
            queue.read(queue.min_offset, 8)
    store.close()


def _mend(disk: Fence) -> None:
    repair_data(ROOT, disk=disk, clock=ManualClock(), random=Random(1))
    assert list(check_data(StoreCheck(ROOT, disk, ManualClock()))) is not None


def _start(disk: Fence) -> None:
    world = HostileWorld(YAML, disk=disk)
    world.run(1.0)
    for name in [name for name, topic in opened_of(world.node).store.topics.items() if not topic.system][:4]:
        if name != "orders":
            opened_of(world.node).store.topic_changes.delete(name)
    assert world.node.failure is None
    task = world.loop.create_task(world.node.stop(drain_seconds=0.1))
    world.loop.run(task.done, seconds=60)
    task.result()


def _copy_and_restore(disk: Fence) -> None:
    Backup(ROOT, COPY, source=disk, disk=disk, clock=ManualClock()).make()
    restore(COPY, BACK, disk=disk, clock=ManualClock())


def seeds() -> dict[str, bytes]:
    """Return the first inputs: each state file as it is and with hostile names, foreign files, a crafted manifest."""
    found = {"nothing": b""}
    for path, content in sorted(image().items()):
        name = path.removeprefix(f"{ROOT}/")
        if name.endswith((".json", ".bak")) and len(content) < 4000:
            found["as-it-is-" + name.replace("/", "-")] = written(Edit(RAW, name, content))
            if name.startswith("pyddmq/"):
                found["sealed-" + name.replace("/", "-")] = written(
                    Edit(SEALED, name, json.dumps(json.loads(content)["data"]).encode())
                )
    for number, hostile in enumerate(["../outside", "a/b", "..", "a\0b"]):
        life = {hostile: {"deleted": True, "served": False, "begins_at": 0, "bases": [1]}}
        table = {"topicConfigTable": {hostile: {"readQueueNums": 1, "writeQueueNums": 1}}}
        found[f"lives-{number}"] = written(Edit(SEALED, "pyddmq/topic_lives.json", json.dumps(life).encode()))
        found[f"topics-{number}"] = written(Edit(TOPICS, "x", json.dumps(table).encode()))
        found[f"line-{number}"] = written(Edit(MANIFEST_LINE, hostile, b"x"))
        offsets = {"offsetTable": {f"{hostile}@g": {"0": 1}, f"orders@{hostile}": {"0": 1}}}
        found[f"offsets-{number}"] = written(Edit(RAW, "config/consumerOffset.json", json.dumps(offsets).encode()))
    for number, path in enumerate(["consumequeue/x/²/1", "commitlog/²", "pyddmq/acks/².acks", "timerlog/٣", "index/²"]):
        found[f"digits-{number}"] = written(Edit(RAW, path, b"x"))
    found["deep"] = written(Edit(TOPICS, "x", b"[" * 3000))
    found["gone"] = written(*(Edit(REMOVED, f"pyddmq/{name}.json", b"") for name in ("store", "checkpoint", "topics")))
    return found
