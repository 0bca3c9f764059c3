"""By what a store is known to need a feature: names of topics and of files.

This is knowledge of the format, as the names in `broker.queues.topics.SYSTEM_TOPICS` are: a core that is opened without
a feature must see that a store has something of it, and cannot ask the feature. A feature that keeps something new adds
a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.runtime.seams import Disk


class FeatureMarks(NamedTuple):
    """What a store has when a feature was used in it.

    Attributes:
        feature: Its name.
        topics: Topics of its own.
        prefixes: How names of its topics begin.
        files: Its files and folders, below the store.
    """

    feature: str
    topics: tuple[str, ...] = ()
    prefixes: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


MARKS = (
    FeatureMarks("delay", topics=("SCHEDULE_TOPIC_XXXX", "rmq_sys_delay_cancels")),
    FeatureMarks("timer", topics=("rmq_sys_wheel_timer",)),
    FeatureMarks("loop", files=("pyddmq/loops.json",)),
    FeatureMarks(
        "transaction",
        topics=("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "TRANS_CHECK_MAX_TIME_TOPIC"),
    ),
    FeatureMarks(
        "retry",
        prefixes=("%RETRY%", "%DLQ%"),
        files=("pyddmq/consumer_finished.json", "pyddmq/redrives.json"),
    ),
    FeatureMarks("consumer", files=("pyddmq/consumer_retries.json", "pyddmq/broadcast")),
    FeatureMarks("deduplication", files=("pyddmq/deduplication", "pyddmq/writes.json")),
    FeatureMarks("pop", prefixes=("rmq_sys_REVIVE_LOG_",)),
)
"""Where the log decides, as with delays, timers and transactions, the topic is the mark: their files can be missing,
and RocketMQ writes its own before anything waits."""


def needed_by(*, topics: Sequence[str] = (), files: Sequence[str] = ()) -> dict[str, str]:
    """Return what of these needs a feature: the name of a topic or file, and that of its feature."""
    found: dict[str, str] = {}
    for marks in MARKS:
        for topic in topics:
            if topic in marks.topics or topic.startswith(marks.prefixes):
                found[topic] = marks.feature
        for file in files:
            if file in marks.files:
                found[file] = marks.feature
    return found


def marked_files(root: str, *, disk: Disk) -> list[str]:
    """Return the files and folders of a store that need a feature, relative to it. Raises OSError."""
    return [file for marks in MARKS for file in marks.files if disk.exists(f"{root}/{file}")]
