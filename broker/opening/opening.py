"""The steps of opening a store that need no open store: folders, lock, geometry, recovery, and its report."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import structlog

from broker.errors import REPAIR_ADVICE, NotAStore, StoreInUse, StoreUnreadable, StoreUnwritable
from broker.feature import OpenedFeatures
from broker.feature_marks import marked_files
from broker.log.commit_log import CommitLog
from broker.opening.accepted_content import refuse
from broker.opening.foreign import in_layout, report_foreign, topics_named
from broker.opening.recovery import RecoveryFacts, RecoveryProgress, RecoverySteps, recover
from broker.opening.store_json import (
    FORMAT_VERSION,
    AbortFile,
    QueueCheckpoint,
    check_geometry,
    geometry_in,
    raise_format,
)
from broker.options import StoreOptions
from broker.queues.fillers import rewrite
from broker.queues.topics import Topics
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Disk, Lock
from broker.runtime.store_metrics import (
    BATCHES_CUT,
    DUPLICATES,
    FILES_DAMAGED,
    FILLERS,
    HOLE_BYTES,
    HOLES,
    RECOVERED,
    TAILS_CUT,
)

FOLDERS = ("", "/commitlog", "/consumequeue", "/index", "/config", "/pyddmq")

_STORE_MARKS = ("commitlog", "pyddmq", "config/topics.json")
_SMALL_FILES = frozenset({"lock", "abort", "checkpoint"})
_OWN = frozenset(folder.removeprefix("/") for folder in FOLDERS)

logger = structlog.get_logger()


def _refuse_others_files(root: str, disk: Disk) -> None:
    """Refuse a folder with files that are no store's: a mistyped path must not make a store among them.

    A store, RocketMQ's too, has a `commitlog`, a `pyddmq` or its topics; what a kill left of the very first start, or
    of RocketMQ's, has known names alone, and empty folders.

    Raises:
        NotAStore: There are such files.
        OSError: The folder cannot be read.
    """
    names = [name for name in disk.list(root) if not name.startswith(".") and name != "lost+found"]
    if any(disk.exists(f"{root}/{mark}") for mark in _STORE_MARKS):
        if disk.open_to_others(root):
            advice = f"other users can read its messages; restrict access with `chmod -R go= {root}` if they should not"
            logger.warning("data_directory_open_to_others", root=root, advice=advice)
        return
    strange = [name for name in names if name not in _SMALL_FILES and (name not in _OWN or disk.list(f"{root}/{name}"))]
    if strange:
        raise NotAStore(root, strange)


def take_lock(root: str, disk: Disk) -> Lock:
    """Make the store's folders and take its lock; a new lock file gets RocketMQ's content.

    Raises:
        NotAStore: There are other files, and no store.
        StoreInUse: Somebody holds the lock.
        StoreUnwritable: A folder or the lock file cannot be made.
    """
    path = f"{root}/lock"
    try:
        _refuse_others_files(root, disk)
        for folder in FOLDERS:
            disk.make_folder(root + folder)
        if not disk.exists(path):
            # Written before the lock is taken: closing any handle of a locked file would drop a POSIX lock.
            file = disk.open(path, create=True)
            file.write(0, [b"lock"])
            file.close()
        return disk.lock(path)
    except BlockingIOError as error:
        raise StoreInUse(root) from error
    except OSError as error:
        raise StoreUnwritable(root, error) from error


def open_log(root: str, options: StoreOptions, *, log: CommitLog, disk: Disk, given: OpenedFeatures) -> bool:
    """Open the log's files and compare the store's sizes with the configured ones.

    Returns:
        Whether the store is of an older format (`store_json.raise_format`).

    Raises:
        StoreGeometryDiffers, StoreFormatNewer: See `store_json.check_geometry`.
        StoreForeign: It has what would be served wrongly (`broker.opening.foreign`), and no operator accepted it.
        FeatureMissing: It has what needs a feature that is not given.
        StoreUnreadable: The geometry is damaged, or a log file has a wrong size.
        OSError: A file cannot be read or written.
    """
    refuse(root, disk)
    given.check(root, topics=topics_named(root, disk), files=marked_files(root, disk=disk))
    strange = log.open()
    segment_bytes = strange[0][1] if strange else None
    older = check_geometry(root, geometry_in(options), disk=disk, segment_bytes_found=segment_bytes)
    if strange:
        raise StoreUnreadable(
            f"{log.folder}/{strange[0][0]} does not have the size or name of a log file of "
            f"{options.segment_bytes} bytes; {REPAIR_ADVICE}"
        )
    return older


def sync_names(root: str, disk: Disk) -> None:
    """Make the names in the store's folders durable: a killed process may have left some that only memory holds.

    Raises:
        OSError: A folder cannot be synced.
    """
    for folder in FOLDERS:
        disk.sync_folder(root + folder)


def recovered(
    root: str,
    log: CommitLog,
    topics: Topics,
    *,
    abort: AbortFile,
    checkpoint: QueueCheckpoint | None,
    disk: Disk,
    given: OpenedFeatures,
) -> RecoverySteps:
    """Mark the store as open and recover it, in steps (`recovery.recover`).

    Raises:
        OSError: A file cannot be read or written.
    """
    clean = not abort.exists()
    if not clean:
        sync_names(root, disk)
    abort.create()
    steps = recover(log, topics, checkpoint, clean=clean, given=given)
    first = next(steps)
    logger.info("store_recovering", root=root, clean=clean, bytes_to_scan=first.total_bytes, whole_log=first.whole_log)
    yield first
    facts = yield from steps
    damaged = tuple(path.removeprefix(f"{root}/") for path in topics.damaged)
    return replace(facts, files_damaged=damaged, foreign=tuple(in_layout(root, disk)))


def raised(root: str, log: CommitLog, topics: Topics, *, disk: Disk) -> Iterator[RecoveryProgress]:
    """Give a recovered store of an older format its present one, in steps: rewrite its fillers. Raises OSError."""
    count = 0
    for queue in topics.queues():
        count += rewrite(queue, log_minimum=log.min_offset, segment_bytes=log.segment_bytes)
        queue.sync()
        yield RecoveryProgress(0, 0)
    found = raise_format(root, disk=disk)
    logger.info("store_format_raised", root=root, found=found, now=FORMAT_VERSION)
    logger.info("store_fillers_rewritten", root=root, count=count)


def report(root: str, facts: RecoveryFacts, options: StoreOptions, metrics: Metrics) -> None:
    """Count and log what recovery found."""
    report_foreign(root, facts.foreign, metrics)
    for path in facts.files_damaged:
        metrics.counter(FILES_DAMAGED, path).add()
    for name, amount in (
        (RECOVERED, facts.records),
        (HOLES, len(facts.holes)),
        (HOLE_BYTES, sum(end - start for start, end in facts.holes)),
        (TAILS_CUT, int(facts.truncated_to is not None)),
        (BATCHES_CUT, facts.batches_cut),
        (FILLERS, facts.fillers),
        (DUPLICATES, facts.duplicates),
    ):
        metrics.counter(name).add(amount)
    logger.info(
        "store_opened",
        root=root,
        clean=facts.clean,
        records_scanned=facts.records,
        scanned_from=facts.scanned_from,
        whole_log=facts.whole_log,
        log_end=facts.end,
        truncated_to=facts.truncated_to,
    )
    if facts.holes or facts.fillers or facts.duplicates or facts.batches_broken:
        logger.error(
            "store_damage_found",
            root=root,
            holes=facts.holes,
            fillers=facts.fillers,
            duplicates=facts.duplicates,
            batches_broken=facts.batches_broken,
        )
