"""What can go wrong in the store, one class per cause; every sentence says what to do.

`StoreError` is the root. Opening raises `NotAStore`, `StoreInUse`, `StoreUnwritable`, `StoreFormatNewer`,
`StoreGeometryDiffers`, `StoreForeign`, `StoreUnreadable` or `FeatureMissing`; appending `MessageRefused`, `DiskFull` or
`StoreFailed`; reading `DamagedRecord` or `RecordGone`, unpacking a body `BodyUnusable`; consuming `QueuesOwned`.
"""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What a full disk says; anything else is a failed disk."""

ILLEGAL_MESSAGE_CODE = 11
"""DDMQ's FAIL_ILLEGAL_MSG: the answer to a producer for a message that can never be stored."""

REPAIR_ADVICE = "`pyddmq store check DATA --repair` shows what can be repaired; or restore a backup"
"""What to do about a damaged file."""


_NAMES_SHOWN = 5
_TOO_MANY_FILES = "raise the limit of open files (`ulimit -n`, LimitNOFILE of a service)"
_NO_SPACE_LEFT = "free some space there, or choose another directory"
_ADVICE = {
    errno.EMFILE: _TOO_MANY_FILES,
    errno.ENFILE: _TOO_MANY_FILES,
    errno.ENOSPC: _NO_SPACE_LEFT,
    errno.EDQUOT: _NO_SPACE_LEFT,
    errno.EROFS: "mount the file system writable, or choose another directory",
    errno.EIO: "the disk does not work (the kernel's log says more): choose another one",
}
"""What to do about a data directory that cannot be written; anything else is a matter of permissions."""


def some_of(names: Sequence[str]) -> str:
    """Return the first of these names, and how many there are besides."""
    left = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {left} more" if left > 0 else "")


class StoreError(Exception):
    """Something is wrong with the store."""


class StoreInUse(StoreError):
    """Another process, or another store object of this process, holds the lock."""

    def __init__(self, root: str) -> None:
        super().__init__(
            f"data directory {root} is in use by another process; stop that process, or choose another directory"
        )
        self.root = root


class StoreUnwritable(StoreError):
    """The data directory cannot be created or written."""

    def __init__(self, root: str, cause: OSError) -> None:
        from conf.file_faults import file_fault

        advice = _ADVICE.get(cause.errno or 0, "grant this user write permission there, or choose another directory")
        super().__init__(f"cannot write to data directory {root}: {file_fault(cause, root, to='write')}; {advice}")
        self.root = root


class NotAStore(StoreError):
    """The folder holds other files and no store: none is made among them."""

    def __init__(self, root: str, names: list[str]) -> None:
        super().__init__(
            f"{root} is not empty and has no store (found: {some_of(names)}); pass an empty or new folder "
            "as the data directory, or the folder of the store"
        )


class StoreFormatNewer(StoreError):
    """The store was written by a newer version of this program."""

    def __init__(self, root: str, found: int, known: int) -> None:
        super().__init__(
            f"data directory {root} has format {found}, this version supports formats up to {known}; start "
            "the newer version that wrote it"
        )
        self.found = found
        self.known = known


class StoreGeometryDiffers(StoreError):
    """The configured file sizes are not those that the store was created with (D4)."""

    def __init__(self, root: str, differences: dict[str, tuple[int, int]]) -> None:
        parts = ", ".join(f"{name} {found} (configured: {asked})" for name, (found, asked) in differences.items())
        super().__init__(
            f"data directory {root} was created with {parts}; file sizes are fixed at creation: restore "
            "these settings, or choose an empty directory"
        )
        self.differences = differences


class StoreForeign(StoreError):
    """The store holds what RocketMQ keeps in a way that this version does not read.

    Attributes:
        counts: How many of which kind (`broker.opening.foreign`).
    """

    def __init__(self, root: str, sentences: list[str], counts: dict[str, int]) -> None:
        super().__init__(f"data directory {root} cannot be opened: {'; '.join(sentences)}")
        self.counts = counts


class StoreUnreadable(StoreError):
    """A file that the store cannot do without is damaged, and so is its copy."""


class FeatureMissing(StoreUnreadable):
    """The store has something of a feature that it was not opened with.

    Attributes:
        missing: Name of each topic or file, and that of the feature that it needs.
    """

    def __init__(self, root: str, missing: Mapping[str, str]) -> None:
        shown = some_of([f"{what} (feature {name})" for what, name in missing.items()])
        names = ", ".join(sorted(set(missing.values())))
        super().__init__(
            f"data directory {root} has {shown}, and the features for it are missing; pass {names} in "
            "`features` (broker.features.ALL has all of them)"
        )
        self.missing = dict(missing)


class StoreFailed(StoreError):
    """A write or sync failed: the store accepts no writes until it is opened again (fail-stop).

    Attributes:
        cause: The error; its `filename` names the file where that is known.
        at_ms: When it happened, wall clock.
    """

    def __init__(self, what: str, cause: OSError, *, at_ms: int = 0) -> None:
        from conf.file_faults import file_fault

        where = f" ({cause.filename})" if cause.filename else ""
        super().__init__(
            f"{what} failed{where}: {file_fault(cause)}; writes are refused. Check the disk, then restart: "
            "everything acknowledged so far is kept"
        )
        self.cause = cause
        self.at_ms = at_ms


class DiskFull(StoreError):
    """No further segment could be claimed; publishes are refused until space is free again (D5)."""

    def __init__(self, root: str, needed_bytes: int) -> None:
        super().__init__(
            f"the disk of {root} has no space for another {needed_bytes} bytes; free some space: then "
            "publishes are accepted again without a restart"
        )
        self.needed_bytes = needed_bytes


class MessageRefused(StoreError):
    """A message that can never be stored as it is.

    Attributes:
        code: Result code of the producer's protocol, stable.
        text: What is wrong with it.
    """

    def __init__(self, text: str, code: int = ILLEGAL_MESSAGE_CODE) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class DamagedRecord(StoreError):
    """The bytes at a position are not the record that was written there; only this record is lost.

    Attributes:
        physical: Commit-log offset; -1 when only the bytes are known.
        sum_wrong: Its header is right and its checksum is not.
    """

    def __init__(self, physical: int, why: str, *, sum_wrong: bool = False) -> None:
        super().__init__(f"record at commit-log offset {physical} is damaged: {why}")
        self.physical = physical
        self.sum_wrong = sum_wrong


class RecordGone(StoreError):
    """The record's segment was deleted by retention."""

    def __init__(self, physical: int) -> None:
        super().__init__(f"the record at commit-log offset {physical} was deleted")
        self.physical = physical


class BodyUnusable(StoreError):
    """A record's body is packed in a way that cannot be undone; the record itself is sound.

    Attributes:
        reason: Label of the counters: too_large, damaged, unknown_compression, no_library or inner_batch.
        text: A sentence about the body.
    """

    def __init__(self, reason: str, text: str) -> None:
        super().__init__(f"the body cannot be delivered: {text}")
        self.reason = reason
        self.text = text


class QueuesOwned(StoreError):
    """Another consumer has the queues of a group.

    Attributes:
        group: The group.
        owner: Client id of who holds them.
        place: One of the queues: topic and queue id.
    """

    def __init__(self, group: str, owner: str, place: tuple[str, int]) -> None:
        topic, queue_id = place
        super().__init__(
            f"queue {queue_id} of topic {topic!r} is consumed by {owner!r} for group {group!r}: a group "
            "belongs to the proxy or to consumers inside the program; stop that consumer, or use another "
            "group"
        )
        self.group = group
        self.owner = owner
        self.place = place
