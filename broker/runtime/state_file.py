"""Small JSON files that survive a kill, a torn write and a flipped bit.

`StateFile` keeps a file in RocketMQ's shape under `config/`, with RocketMQ's `.bak` twin (the version before) and a
checksummed twin under `pyddmq/` (D2). RocketMQ and its tools may change the file: then the file wins. Damage that
leaves no valid JSON is healed from the checksummed twin, then from `.bak`.
"""

from __future__ import annotations

import json
from typing import Any

import structlog

from broker.errors import REPAIR_ADVICE, StoreUnreadable
from broker.runtime.file_writes import FileWrite, at_once
from broker.runtime.json_keys import parse_loose
from broker.runtime.sealed_file import NOT_PARSED, SealedFile, encoding, read_whole, sum_text, writing_whole
from broker.runtime.seams import Disk

_TWIN = ("crc32", "previous", "text")

log = structlog.get_logger()


def data_version(found: Any) -> dict[str, Any]:
    """Return a `dataVersion` as a file says it; a fresh one where it says none, or no number of changes."""
    if isinstance(found, dict) and type(found.get("counter", 0)) is int:
        return found
    return {"counter": 0, "stateVersion": 0, "timestamp": 0}


def next_version(version: dict[str, Any], wall_ms: int) -> dict[str, Any]:
    """Return the `dataVersion` of a file with one change more."""
    return {**version, "counter": version.get("counter", 0) + 1, "timestamp": wall_ms}


class StateFile:
    """A JSON file of RocketMQ's with its twins.

    Attributes:
        changed_outside: Set by `load`: the file is valid and is not what was last written here.
        foreign: Set by `load`: likewise, or nothing was ever written here.
        damaged: Set by `load`: paths of the copies that it found damaged.
        written: Sum of the version that this program wrote or read last, "" before that.
        sums: Set by `load`: of what may be the last version of this program, which what was added since names.
    """

    def __init__(self, disk: Disk, root: str, name: str) -> None:
        self._disk = disk
        self.path = f"{root}/config/{name}"
        self._backup = f"{self.path}.bak"
        self._twin = SealedFile(disk, f"{root}/pyddmq/{name}")
        self.written = ""
        self.sums = {""}
        self.changed_outside = self.foreign = False
        self.damaged: list[str] = []

    def load(self) -> Any:
        """Return the parsed content; None when there is none at all.

        Raises:
            StoreUnreadable: The file is there and neither it nor a twin can be read.
        """
        self.damaged = []
        twin = self._load_twin()
        try:
            return self._chosen(twin)
        finally:
            self.sums = {self.written} if twin is None else {self.written, twin["crc32"]}

    def _chosen(self, twin: dict[str, str] | None) -> Any:
        raw = read_whole(self._disk, self.path)
        self.changed_outside = self.foreign = False
        if raw is not None:
            found = sum_text(raw)
            if twin is not None and twin["previous"] == found:
                # The stop came between the twin and the file: the twin is the newer of our own two. The file stays what
                # it is until the next save, whose twin must name it again: that save may be stopped there, too.
                data = self._from_twin(twin)
                self.written = found
                return data
            data = _parse(raw)
            if data is not None:
                self.written = found
                self.changed_outside = twin is not None and twin["crc32"] != found
                self.foreign = self.changed_outside or (twin is None and not self.damaged)
                if self.changed_outside:
                    log.warning("state_file_changed_outside", path=self.path)
                return data
            self.damaged.append(self.path)
        if twin is not None:
            if raw is not None:
                log.error("state_file_damaged_twin_used", path=self.path)
            return self._from_twin(twin)
        backup = read_whole(self._disk, self._backup)
        data = _parse(backup) if backup is not None else None
        if data is not None:
            log.error("state_file_damaged_backup_used", path=self.path)
            return data
        if raw is None and backup is None:
            return None
        raise StoreUnreadable(f"{self.path} is damaged and so are its copies; {REPAIR_ADVICE}")

    def is_deleted(self) -> bool:
        """Whether the file or its twin was deleted since it was read or written here; logs that.

        Makes the folders of both again where that is so. Raises OSError.
        """
        deleted = [path for path in (self.path, self._twin.path) if self.written and not self._disk.exists(path)]
        for path in deleted:
            log.error("state_file_deleted", path=path)
            self._disk.make_folder(path.rpartition("/")[0])
        return bool(deleted)

    def save(self, data: Any) -> None:
        """Write twin and file durably. Raises OSError; the version before then is in at least one of them."""
        at_once(self._disk, self.writing(data))

    def writing(self, data: Any) -> FileWrite:
        """`save` in steps; no other save of this file may come between. Raises the same."""
        text = yield from encoding(data, ensure_ascii=False)
        body = text.encode("utf-8", "surrogatepass")
        crc = sum_text(body)
        twin = {"crc32": crc, "previous": self.written, "text": text}
        yield from self._twin.writing(twin)
        yield from writing_whole(self._disk, self.path, body, backup=self._backup)
        self.written = crc

    def _load_twin(self) -> dict[str, str] | None:
        try:
            twin = self._twin.load()
            if twin is None or (
                all(type(twin[name]) is str for name in _TWIN) and json.loads(twin["text"]) is not None
            ):
                return twin  # type: ignore[no-any-return]  # what it is was just asked
        except (StoreUnreadable, *NOT_PARSED):
            pass
        # Also one with a right sum that is no twin.
        log.error("state_file_twin_damaged", path=self._twin.path)
        self.damaged.append(self._twin.path)
        return None

    def _from_twin(self, twin: dict[str, str]) -> Any:
        self.written = twin["crc32"]
        return json.loads(twin["text"])


def _parse(raw: bytes) -> Any:
    try:
        return parse_loose(raw.decode("utf-8"))
    except NOT_PARSED:
        return None
