"""What a store of RocketMQ's has that this broker does not read: refused or reported by name when it is opened.

Refused (`StoreForeign`), because messages or offsets would be missing or wrong:

- topics of the type BatchCQ (`batchconsumequeue/`): one unit is of many messages;
- consume queues or settings in RocksDB (`consumequeue/CURRENT`, `config/rdb`, `config/topics/CURRENT` ...): committed
  offsets would be lost, and RocketMQ could not continue with what is written here.

Refused until an operator accepts it (`broker.opening.accepted_content`), because it is in RocksDB beside files that are
read:

- `kvStore` (popConsumerKVServiceEnable): what POP consumers have in flight is not seen, and not delivered again;
- `rocksdbstore` (transRocksDBEnable, timerRocksDBEnable): undecided transactions may not be seen, and timers that
  RocketMQ delivered may be delivered again.

Reported, because every message in the log is served all the same:

- compaction topics: served whole, also what compaction has dropped;
- static topics (`topicQueueMapping.json`): served by this broker's own queues and offsets;
- light queues (`%LMQ%...`): their messages are served in the topics that they were sent to, and only there.

What is pending there is served: messages of delay levels and timers (`broker.scheduled.delay.delays`,
`broker.scheduled.timer.timers`), undecided transactions (`broker.transaction`).

`consumequeue_ext/` is passed over: tags come from the records, since all queue files are rebuilt from the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import structlog

from broker.errors import some_of
from broker.runtime.json_keys import parse_loose
from broker.runtime.metrics import Metrics
from broker.runtime.sealed_file import read_whole
from broker.runtime.seams import Disk
from broker.runtime.store_metrics import FOREIGN

LIGHT_PREFIX = "%LMQ%"

ROCKSDB_FOLDERS = ("consumequeue", "config/rdb", "config/topics", "config/consumerOffsets", "config/subscriptionGroups")
_ROCKSDB_MARK = "CURRENT"
_ROCKSDB_DEEPER = "config/rdb"
"""Holds a folder per version of the settings."""
_ROCKSDB_CONTENT = (".sst", ".log")
"""Endings of RocksDB's files with content; RocketMQ makes an empty database whether it is used or not."""
ROCKSDB_BESIDE = {
    "kvStore": (
        "pop_in_rocksdb",
        (
            "messages in flight with POP consumers (popConsumerKVServiceEnable), which are not delivered again "
            "here; let the POP consumers finish in RocketMQ first"
        ),
    ),
    "rocksdbstore": (
        "timers_in_rocksdb",
        (
            "transactions and timers (transRocksDBEnable, timerRocksDBEnable): undecided transactions may be "
            "missing here, and timers that RocketMQ delivered may be delivered again; let RocketMQ finish them "
            "first"
        ),
    ),
}
"""By folder that only RocketMQ reads: the kind, and what it has."""

logger = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsupportedPart:
    """One thing that is not read.

    Attributes:
        kind: batch_queues, rocksdb, pop_in_rocksdb, timers_in_rocksdb, compaction, static_topics or light_queues.
        count: Topics, queues or messages of that kind.
        sentence: What it is, and what to do.
        file: Where it was seen, relative to the store.
        refused: The store is not opened with it.
        content: Identifies its present content, where an operator may accept it; empty otherwise.
    """

    kind: str
    count: int
    sentence: str
    file: str = "config"
    refused: bool = False
    content: str = ""


def in_layout(root: str, disk: Disk) -> list[UnsupportedPart]:
    """Look at names and settings alone, before anything is read or changed.

    Raises:
        OSError: A file or folder cannot be read.
    """
    attributes = {
        name: entry["attributes"]
        for name, entry in topic_table(root, disk).items()
        if isinstance(entry, dict) and isinstance(entry.get("attributes"), dict)
    }
    batches = {name for name, found in attributes.items() if found.get("queue.type") == "BatchCQ"}
    batches.update(disk.list(f"{root}/batchconsumequeue"))
    compacted = {name for name, found in attributes.items() if found.get("cleanup.policy") == "COMPACTION"}
    light = {name for name in disk.list(f"{root}/consumequeue") if name.startswith(LIGHT_PREFIX)}
    found = [
        _named(
            "batch_queues",
            batches,
            "of the type BatchCQ, whose queues have several messages per unit, which this version does not "
            "read; let RocketMQ copy them to ordinary topics, and open a store without them",
            refused=True,
        ),
        _named(
            "rocksdb",
            _rocksdb_folders(root, disk),
            "stored in RocksDB, which this version does not read; let RocketMQ export them to its files "
            "(storeType default, JSON settings) first",
            what="folders",
            file="consumequeue",
            refused=True,
        ),
        *(_in_rocksdb(root, disk, kind, folder, which) for folder, (kind, which) in ROCKSDB_BESIDE.items()),
        _named("compaction", compacted, "compacted by RocketMQ; here every message of them is served"),
        _named(
            "static_topics",
            set(_table(disk, f"{root}/config/topicQueueMapping.json", "topicQueueMappingInfoMap")),
            "spread over brokers (static topics); here they are served by this store's own queues and offsets",
            file="config/topicQueueMapping.json",
        ),
        _named(
            "light_queues",
            light,
            "not served under their own names; their messages are in the topics that they were sent to",
            what="LMQs",
            file="consumequeue",
        ),
    ]
    return [each for each in found if each is not None]


def topics_named(root: str, disk: Disk) -> list[str]:
    """Return the names of topics that a store's table or its queue folders have, before anything is read or changed.

    Raises:
        OSError: A file or folder cannot be read.
    """
    return sorted({*topic_table(root, disk), *disk.list(f"{root}/consumequeue")})


def topic_table(root: str, disk: Disk) -> dict[str, Any]:
    """Return the topics of a store's table as the file says them; none where it cannot be parsed. Raises OSError."""
    return _table(disk, f"{root}/config/topics.json", "topicConfigTable")


def _named(
    kind: str,
    names: set[str],
    which: str,
    *,
    what: str = "topics",
    file: str = "config/topics.json",
    refused: bool = False,
) -> UnsupportedPart | None:
    if not names:
        return None
    sentence = f"{what} {some_of(sorted(names))} are {which}"
    return UnsupportedPart(kind=kind, count=len(names), sentence=sentence, file=file, refused=refused)


def _rocksdb_folders(root: str, disk: Disk) -> set[str]:
    folders = [*ROCKSDB_FOLDERS, *(f"{_ROCKSDB_DEEPER}/{name}" for name in disk.list(f"{root}/{_ROCKSDB_DEEPER}"))]
    return {folder for folder in folders if disk.exists(f"{root}/{folder}/{_ROCKSDB_MARK}")}


def _in_rocksdb(root: str, disk: Disk, kind: str, folder: str, which: str) -> UnsupportedPart | None:
    """A RocksDB beside files that are read; None where it has no content."""
    if not disk.exists(f"{root}/{folder}/{_ROCKSDB_MARK}"):
        return None
    sizes = {}
    for name in disk.list(f"{root}/{folder}"):
        if name.endswith(_ROCKSDB_CONTENT):
            with closing(disk.open(f"{root}/{folder}/{name}")) as file:
                sizes[name] = file.size()
    files = [f"{name} {size}" for name, size in sorted(sizes.items()) if size]
    if not files:
        return None
    sentence = f"folder {folder} is a RocksDB with {which}"
    return UnsupportedPart(kind=kind, count=len(files), sentence=sentence, file=folder, content="\n".join(files))


def _table(disk: Disk, path: str, name: str) -> dict[str, Any]:
    """A table of a settings file of RocketMQ's; empty where there is none, or it cannot be parsed."""
    raw = read_whole(disk, path)
    try:
        found = parse_loose((raw or b"{}").decode("utf-8", "replace"))[name]
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def report_foreign(root: str, found: Sequence[UnsupportedPart], metrics: Metrics) -> None:
    """Log and count what is reported."""
    for each in found:
        metrics.counter(FOREIGN, each.kind).value = each.count
        logger.warning("store_holds_foreign", root=root, kind=each.kind, count=each.count, what=each.sentence)
