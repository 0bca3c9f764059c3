"""`pyddmq/index.json`: what the index files were when they were last saved.

RocketMQ's index files have no sums, and they do not show which of them survived a stop whole. So names and
sums are kept apart, in sealed JSON: `{"position": offset, "files": {name: [head, entries, header] | null}, "missing":
[name]}`. A file that is not what is there is rebuilt from the log; one that is missing, too. Without this file
(a store of RocketMQ's) RocketMQ's own rule decides: after an abnormal stop a file newer than the checkpoint's index
time is not believed.

Names of index files are yyyyMMddHHmmssSSS of their creation, in the machine's time zone, as RocketMQ makes them.
Files are put in order by name, so a new one never has a name before the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from broker.errors import StoreUnreadable
from broker.index.file import IndexFileHeader, Sums
from broker.runtime.file_writes import FileWrite
from broker.runtime.sealed_file import NOT_PARSED, SealedFile
from broker.runtime.seams import Disk

_DIGITS = 17
_FORMAT = "%Y%m%d%H%M%S%f"


def is_file_name(name: str) -> bool:
    """Whether a file of that name can be an index file."""
    if len(name) != _DIGITS or not name.isdigit() or not name.isascii():
        return False
    try:
        datetime.strptime(name, _FORMAT)
    except ValueError:
        return False
    return True


def file_name(wall_ms: int, *, after: str) -> str:
    """Return the name of a file that is made now.

    Args:
        wall_ms: The moment, ms since the epoch.
        after: Name of the last file, "" for none. Where the clock stands still or went back, the millisecond after it.
    """
    name = _name(datetime.fromtimestamp(wall_ms / 1000))
    return name if name > after else _name(datetime.strptime(after, _FORMAT) + timedelta(milliseconds=1))


def _name(moment: datetime) -> str:
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"


class SavedIndex(NamedTuple):
    """The index as it was saved.

    Attributes:
        position: Commit-log offset below which every record is in the files, but for those that are missing.
        files: Sums by name; None for a file that RocketMQ wrote.
        missing: Names of files that were still to be made again.
    """

    position: int
    files: dict[str, Sums | None]
    missing: frozenset[str]


class IndexState:
    """Reads and writes the file."""

    def __init__(self, root: str, *, disk: Disk) -> None:
        self._file = SealedFile(disk, f"{root}/pyddmq/index.json")

    def load(self) -> SavedIndex | None:
        """Return what was saved; None when the file is missing, damaged, or says something else. Raises OSError."""
        try:
            data: dict[str, Any] | None = self._file.load()
            if data is None:
                return None
            files = {
                name: None if sums is None else Sums(sums[0], sums[1], IndexFileHeader(*sums[2]))
                for name, sums in data["files"].items()
            }
            return SavedIndex(int(data["position"]), files, frozenset(data["missing"]))
        except (StoreUnreadable, AttributeError, IndexError, *NOT_PARSED):
            return None

    def writing(self, position: int, files: Mapping[str, Sums | None], missing: Iterable[str]) -> FileWrite:
        """Write the state, durably, in steps; `files` are those that were made durable, by name. Raises OSError."""
        sums = {name: None if each is None else list(each) for name, each in files.items()}
        yield from self._file.writing({"position": position, "files": sums, "missing": list(missing)})
