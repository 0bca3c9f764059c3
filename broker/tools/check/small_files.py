"""The small files of a store: geometry, checkpoints, topics and offsets with their twins; and names not ours."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

from broker.errors import StoreError, StoreFormatNewer, StoreUnreadable
from broker.opening.accepted_content import not_accepted
from broker.opening.foreign import in_layout
from broker.opening.reading import check_sizes, geometry_of, geometry_of_files, has_queue_files
from broker.opening.store_json import CHECKPOINT_BYTES, CheckpointFile, Geometry, rocketmq_times
from broker.queues.offsets import LMQ_FILE
from broker.queues.topics import Topics
from broker.runtime.json_keys import parse_loose
from broker.runtime.sealed_file import SealedFile, read_whole
from broker.runtime.seams import Clock, Disk
from broker.runtime.state_file import StateFile
from broker.tools.check.findings import Severity, StoreFinding

STATE_FILES = ("topics.json", "consumerOffset.json", LMQ_FILE)
"""Under `config/`, with a `.bak` and a checksummed twin under `pyddmq/`."""
_CHECKPOINT_JSON = "pyddmq/checkpoint.json"

_ROOT_NAMES = frozenset(
    {
        "abort",
        "abort.bak",
        "backup.json",
        "checkpoint",
        "commitlog",
        "config",
        "consumequeue",
        "index",
        "lock",
        "pyddmq",
        "timerlog",
        "timerwheel",
    }
)
_ROCKETMQ_NAMES = frozenset(
    {
        "batchconsumequeue",
        "compaction",
        "consumequeue_ext",
        "kvStore",
        "rocksdbstore",
        "dledgerCommitlog",
    }
)
_SEALED_ELSEWHERE = frozenset({"store.json", "checkpoint.json", *STATE_FILES})
_COSTS_OF_SEALED = {
    "topic_lives.json": "a node does not start; without it, deleted topics return as they are in the log",
    "consumer_finished.json": "messages sent back or dead-lettered by in-process listeners; the log is read instead",
    "consumer_retries.json": "failure counts of messages of consumers inside the program; they start from 0",
    "writes.json": "a Spark batch that was being written: repeated in other partitions, its rows may be stored twice",
    "redrives.json": "which dead letters were redriven; the log is read instead",
    "paused.json": "nothing while its copy is correct",
    "paused-copy.json": "nothing while the file is correct",
    "transactions.json": "no data; the next start reads the whole log for decided transactions",
    "accepted.json": "a node that needs it starts only with `pyddmq serve --accept`",
    "delays.json": "no data; the next start reads the whole log for deliveries",
    "delayOffset.json": "no data; the log has the deliveries",
    "timers.json": "no data; the next start rebuilds timer log and wheel from the log",
    "index.json": "no data; the index is rebuilt from the log",
}
_CHECKPOINT_END = 48
"""Bytes of RocketMQ's checkpoint that may say something: RocketMQ 5.5 has a sixth number, which is not read here."""
_OWN_NAMES = frozenset(
    {
        "acks",
        "audit",
        "broadcast",
        "deduplication",
        "lag",
        "lag-alarms",
        "owners",
        "segment.spare",
        "set-aside",
        "sinks",
        "topics_opened.json",
    }
    | {"lag-acks", "visible-end"}
)


def check_geometry(root: str, *, disk: Disk) -> Generator[StoreFinding, None, Geometry]:
    """Check `pyddmq/store.json`, and return the store's sizes, from its files where the file does not say them.

    Raises:
        StoreUnreadable: There is no store, or its files have other sizes than `store.json` says.
        StoreFormatNewer: A newer version wrote it.
    """
    path = "pyddmq/store.json"
    try:
        geometry = geometry_of(root, disk=disk)
    except StoreFormatNewer:
        raise
    except StoreUnreadable:
        geometry = geometry_of_files(root, disk=disk)
        yield StoreFinding(
            kind="store_json_damaged",
            severity=Severity.DAMAGE,
            file=path,
            text="its checksum is wrong",
            costs="a node does not start",
            repair="rewritten with the sizes of the existing files"
            if has_queue_files(root, disk=disk)
            else (
                "moved to pyddmq/set-aside; the node's next start writes it with its configured sizes, as no "
                "queue file shows its own"
            ),
        )
    else:
        if geometry is not None and not disk.exists(f"{root}/{path}"):
            own = disk.list(f"{root}/pyddmq")
            is_mended = bool(own) and has_queue_files(root, disk=disk)
            yield StoreFinding(
                kind="store_json_missing",
                severity=Severity.WARNING if is_mended else Severity.NOTE,
                file=path,
                text="it is missing" if own else "it is missing; only RocketMQ wrote this store so far",
                costs="the configured sizes apply; those that differ from the log's are refused",
                repair="written with the sizes of the existing files" if is_mended else "",
            )
    if geometry is None:
        raise StoreUnreadable(f"{root} has no store; pass the data directory of a node")
    check_sizes(root, geometry, disk=disk)
    return geometry


def check_names(root: str, *, disk: Disk, live: bool) -> Iterator[StoreFinding]:
    """Look for what is not known at the root, and for `abort` and `checkpoint`."""
    for name in disk.list(root):
        if name not in _ROOT_NAMES and not name.endswith(".new"):
            whose = "written by RocketMQ, and not read here" if name in _ROCKETMQ_NAMES else "unknown to this version"
            yield foreign(name, whose)
    if disk.exists(f"{root}/abort") and not live:
        yield StoreFinding(
            kind="not_closed",
            severity=Severity.NOTE,
            file="abort",
            text="the last owner did not close the store",
            costs="the next start scans the log from the checkpoint",
        )
    yield from _check_rocketmq_checkpoint(root, disk=disk)
    try:
        missing = SealedFile(disk, f"{root}/{_CHECKPOINT_JSON}").load() is None
    except StoreUnreadable:
        yield checkpoint_finding("checkpoint_json_damaged", "its checksum is wrong")
    else:
        if missing and disk.list(f"{root}/pyddmq"):
            yield checkpoint_finding("checkpoint_json_missing", "it is missing")


def checkpoint_finding(kind: str, text: str) -> StoreFinding:
    """Return a finding of the checkpoint without which recovery looks at the whole log."""
    return StoreFinding(
        kind=kind,
        severity=Severity.WARNING,
        file=_CHECKPOINT_JSON,
        text=text,
        costs="the next start scans the whole log and rebuilds every queue file",
        repair="the store is opened and closed, which rewrites it",
    )


def _check_rocketmq_checkpoint(root: str, *, disk: Disk) -> Iterator[StoreFinding]:
    raw = read_whole(disk, f"{root}/checkpoint")
    if raw is not None and len(raw) == CHECKPOINT_BYTES and not raw[_CHECKPOINT_END:].strip(b"\x00"):
        yield from _compare_checkpoints(root, raw, disk=disk)
        return
    size = "it is missing" if raw is None else f"it has {len(raw)} bytes, which is not a checkpoint"
    yield StoreFinding(
        kind="checkpoint_missing" if raw is None else "checkpoint_damaged",
        severity=Severity.WARNING,
        file="checkpoint",
        text=size,
        costs="no data here; RocketMQ would scan more of the log",
        repair="the store is opened and closed, which rewrites it",
    )


def _compare_checkpoints(root: str, raw: bytes, *, disk: Disk) -> Iterator[StoreFinding]:
    checkpoint = CheckpointFile(root, disk=disk).load()
    if checkpoint is not None and raw[:40] != rocketmq_times(checkpoint):
        yield StoreFinding(
            kind="checkpoint_differs",
            severity=Severity.NOTE,
            file="checkpoint",
            text="it does not belong to pyddmq/checkpoint.json: RocketMQ wrote it since, or it is damaged",
            costs="no data here; the next start rewrites it",
        )


def check_own_folder(root: str, *, disk: Disk) -> Iterator[StoreFinding]:
    """Check the sums of further files under `pyddmq/`, and look for names that are not known."""
    for name in disk.list(f"{root}/pyddmq"):
        path = f"pyddmq/{name}"
        if name in _SEALED_ELSEWHERE or name in _OWN_NAMES or name.endswith(".new"):
            continue
        if not name.endswith(".json"):
            yield foreign(path)
            continue
        try:
            SealedFile(disk, f"{root}/{path}").load()
        except StoreUnreadable:
            yield StoreFinding(
                kind="sealed_damaged",
                severity=Severity.DAMAGE,
                file=path,
                text="its checksum is wrong",
                costs=_COSTS_OF_SEALED.get(
                    name, "its content is lost; a node that needs it does not start and names it"
                ),
                repair="moved to pyddmq/set-aside",
            )


def check_state_files(root: str, *, disk: Disk) -> Iterator[StoreFinding]:
    """Check topics and committed offsets, their twins and backups."""
    for name in STATE_FILES:
        yield from _check_state_file(root, name, disk=disk)


def _check_state_file(root: str, name: str, *, disk: Disk) -> Iterator[StoreFinding]:
    path, twin_path, backup_path = f"config/{name}", f"pyddmq/{name}", f"config/{name}.bak"
    raw = read_whole(disk, f"{root}/{path}")
    backup = read_whole(disk, f"{root}/{backup_path}")
    twin: dict[str, Any] | None = None
    twin_damaged = False
    try:
        twin = SealedFile(disk, f"{root}/{twin_path}").load()
    except StoreUnreadable:
        twin_damaged = True
        yield StoreFinding(
            kind="twin_damaged",
            severity=Severity.WARNING,
            file=twin_path,
            text="its checksum is wrong",
            costs="nothing while its copy is correct",
            repair=f"rewritten from {path}",
        )
    copies = twin is not None or _is_json(backup)
    if raw is None and (copies or twin_damaged or backup is not None):
        yield _state_finding("file_missing", path, "it is missing", copies=copies)
    elif raw is not None and not _is_json(raw):
        yield _state_finding("file_damaged", path, "it is not a JSON object", copies=copies)
    elif raw is not None and twin is not None:
        state = StateFile(disk, root, name)
        state.load()
        if state.changed_outside:
            yield StoreFinding(
                kind="changed_by_others",
                severity=Severity.NOTE,
                file=path,
                text="this program did not write it last (RocketMQ, an operator, or damage)",
                costs="it is valid and has precedence at the next start",
            )
    if backup is not None and not _is_json(backup):
        yield StoreFinding(
            kind="backup_damaged",
            severity=Severity.WARNING,
            file=backup_path,
            text="it is not a JSON object",
            costs="nothing while its copy is correct",
            repair=f"rewritten from {path}",
        )


def _state_finding(kind: str, path: str, text: str, *, copies: bool) -> StoreFinding:
    topics = path.endswith("topics.json")
    lost = "topics without messages are forgotten" if topics else "a node does not start while the damaged file exists"
    return StoreFinding(
        kind=kind,
        severity=Severity.WARNING if copies else Severity.DAMAGE,
        file=path,
        text=text,
        costs="no data; a copy is used" if copies else lost,
        repair="rewritten from its copy"
        if copies
        else "moved to pyddmq/set-aside; its content is rebuilt from log and journal",
    )


def _is_json(raw: bytes | None) -> bool:
    try:
        return raw is not None and isinstance(parse_loose(raw.decode("utf-8")), dict)
    except (ValueError, RecursionError):
        return False


def load_topics(root: str, geometry: Geometry, *, disk: Disk, clock: Clock) -> Generator[StoreFinding, None, Topics]:
    """Return the topics as far as they can be read; none when the file and its copies are damaged.

    What is damaged is reported by others; what reads well and says what cannot be is reported here.
    """
    topics = Topics(root, disk=disk, clock=clock, queue_file_units=geometry.queue_file_units)
    try:
        topics.load()
    except StoreError as error:
        yield StoreFinding(
            kind="topics_refused",
            severity=Severity.DAMAGE,
            file="config/topics.json",
            text=str(error),
            costs="a node does not start",
        )
        return Topics(root, disk=disk, clock=clock, queue_file_units=geometry.queue_file_units)
    return topics


def foreign(file: str, whose: str = "unknown to this version") -> StoreFinding:
    """Return the finding of a file that does not belong to a store."""
    return StoreFinding(
        kind="foreign_file",
        severity=Severity.NOTE,
        file=file,
        text=f"this name belongs to {whose}",
        costs="nothing; it is not touched",
    )


def check_foreign(root: str, *, disk: Disk) -> Iterator[StoreFinding]:
    """What RocketMQ keeps in a way that this version does not read, as far as names and settings show."""
    layout = in_layout(root, disk)
    try:
        asking = not_accepted(root, layout, disk)
    except StoreUnreadable:
        # Reported with the other sealed files.
        asking = layout
    for found in layout:
        severity, costs = Severity.NOTE, "nothing; every message of the log is served"
        if found.refused:
            severity, costs = Severity.DAMAGE, "a node does not start on it"
        elif found.content:
            costs = "it was accepted by `pyddmq serve --accept`"
            if found in asking:
                severity, costs = Severity.WARNING, "a node starts on it only with `pyddmq serve --accept`"
        yield StoreFinding(
            kind="foreign", severity=severity, file=found.file, text=found.sentence, costs=costs, count=found.count
        )
