"""What Apache RocketMQ and this broker need to know of each other before they open the same store, one after the other.

The files are RocketMQ's; what differs is how large they are, since RocketMQ takes its sizes from broker.conf and this
broker fixes them when a store is created (D4). `geometry_of` returns the sizes of any store, `adopted` makes the
options that open it, and `broker_settings` is the broker.conf with which RocketMQ 5.3 opens it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, replace

from broker.errors import StoreUnreadable
from broker.opening.foreign import topic_table
from broker.opening.reading import geometry_of, usual_size
from broker.opening.store_json import Geometry
from broker.options import StoreOptions
from broker.queues.consume_queue import UNIT_BYTES
from broker.runtime.seams import Disk
from broker.scheduled.delay.levels import STANDARD_LEVELS
from broker.scheduled.pop_records import REVIVE_PREFIX
from broker.scheduled.timer.names import TimerOptions

CLUSTER_NAME, BROKER_NAME = "pyddmq", "broker-0"
_MEMBERS_PREFIX = "rmq_sys_SYNC_BROKER_MEMBER_"
_NAME = re.compile(r"[%|a-zA-Z0-9_-]+")
_HOURS_KEPT = 24 * 365 * 10
_TIMERS = TimerOptions()


def adopted(root: str, options: StoreOptions, *, disk: Disk) -> StoreOptions:
    """Return the options with the sizes of the store that is there, so that `Store.open` takes it as it is.

    Raises:
        StoreFormatNewer, OSError: As `geometry_of`.
        StoreUnreadable: Likewise; or no store has files of such sizes.
    """
    geometry = geometry_of(root, disk=disk, default=options)
    if geometry is None:
        return options
    try:
        return replace(options, **asdict(geometry))
    except ValueError as error:
        raise StoreUnreadable(
            f"the files in {root} do not form a store: {error}, and the existing ones would give "
            f"{geometry}; restore the store's own files"
        ) from error


def timer_log_bytes_of(root: str, *, disk: Disk) -> int:
    """Return the size of the timer-log files of a store, RocketMQ's default where it has none. Raises OSError."""
    return usual_size(disk, f"{root}/timerlog") or _TIMERS.log_file_bytes


def names_of(root: str, *, disk: Disk) -> tuple[str, str]:
    """Tell the names of cluster and broker that a RocketMQ gave to a store; ours where none had it open.

    RocketMQ names system topics after them, which stay in `topics.json`, and looks for these topics again: under other
    names it would not find what POP consumers have in hand.

    Raises:
        OSError: The file cannot be read.
    """
    names = topic_table(root, disk)

    def named(prefix: str, default: str) -> str:
        found = sorted(name.removeprefix(prefix) for name in names if name.startswith(prefix))
        # Of several, the one that is not ours: a store came from there.
        return next((name for name in found if name != default and _NAME.fullmatch(name)), default)

    return named(REVIVE_PREFIX, CLUSTER_NAME), named(_MEMBERS_PREFIX, BROKER_NAME)


def broker_settings(
    root: str,
    geometry: Geometry,
    *,
    message_bytes_max: int,
    delay_levels: str = STANDARD_LEVELS,
    names: tuple[str, str] = (CLUSTER_NAME, BROKER_NAME),
    timer_log_bytes: int = _TIMERS.log_file_bytes,
) -> dict[str, str]:
    """Return the settings of broker.conf with which RocketMQ 5.3 opens a store of these sizes.

    Addresses are left out. What is not a path, a name or a size:

    - `enabledAppendPropCRC` lets RocketMQ close its records with the sum that ours have (D2).
    - `fileReservedTime`, ten years, keeps RocketMQ from deleting log files by age, which it does after 72 hours by
      default. It still deletes the oldest on a nearly full disk; `diskMaxUsedSpaceRatio` is at its maximum.
    - `timerMaxDelaySec` lets RocketMQ recall what is due in more than three days; what is stored it delivers anyway.

    Args:
        root: The store.
        geometry: Its sizes.
        message_bytes_max: Largest body in bytes.
        delay_levels: Delays of the levels; RocketMQ must have the same.
        names: Of cluster and broker, as `names_of` returns them.
        timer_log_bytes: As `timer_log_bytes_of` returns; RocketMQ does not start on a timer log of other files.
    """
    return {
        "brokerClusterName": names[0],
        "brokerName": names[1],
        "brokerId": "0",
        "storePathRootDir": root,
        "storePathCommitLog": f"{root}/commitlog",
        "mappedFileSizeCommitLog": str(geometry.segment_bytes),
        "mappedFileSizeConsumeQueue": str(geometry.queue_file_units * UNIT_BYTES),
        "maxHashSlotNum": str(geometry.index_slots),
        "maxIndexNum": str(geometry.index_entries),
        "maxMessageSize": str(message_bytes_max),
        "flushDiskType": "SYNC_FLUSH",
        "enabledAppendPropCRC": "true",
        "messageDelayLevel": delay_levels,
        "mappedFileSizeTimerLog": str(timer_log_bytes),
        "timerPrecisionMs": str(_TIMERS.precision_ms),
        "timerMaxDelaySec": str(_TIMERS.delay_ms_max // 1000),
        "fileReservedTime": str(_HOURS_KEPT),
        "diskMaxUsedSpaceRatio": "95",
    }


def broker_conf(settings: Mapping[str, str]) -> str:
    """Write settings as RocketMQ reads them: a Java properties file in ISO 8859-1.

    Raises:
        StoreUnreadable: A path cannot be written in such a file.
    """
    lines = []
    for name, value in settings.items():
        if "\n" in value or "\r" in value:
            raise StoreUnreadable(f"{name} {value!r} has a line break in it; RocketMQ cannot read such a path")
        lines.append(f"{name} = {_escaped(value)}\n")
    return "".join(lines)


def _escaped(value: str) -> str:
    """Return a value as a properties file holds it: backslashes doubled, what is not ASCII as UTF-16 code units."""
    parts = []
    for char in value.replace("\\", "\\\\"):
        if char.isascii():
            parts.append(char)
        else:
            units = char.encode("utf-16-be", "surrogatepass")
            parts.extend(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
    return "".join(parts)
