"""Names that are read back from files: their content is not trusted, and is no path before it was checked.

A topic's name is a folder's, so a reader of one (from JSON, a checkpoint, the ack journal or a record) asks here
first. The rule is RocketMQ's own: of its characters none can lead out of a folder. Names that are asked for may have
127 bytes (`topics.check_name`); RocketMQ's retry topics may have more, and a folder's name 255.
"""

from __future__ import annotations

import re

from broker.errors import StoreUnreadable

STORED_BYTES_MAX = 255
"""What file systems take for one name."""

_STORED = re.compile(rb"[%|a-zA-Z0-9_-]{1,255}")
_KNOWN_MAX = 4096
_SHOWN_CHARS = 100
_known: set[bytes] = set()


def is_stored(name: object) -> bool:
    """Whether a value from a file can be the name of a topic or a group."""
    return isinstance(name, str) and _STORED.fullmatch(name.encode("utf-8", "replace")) is not None


def is_stored_topic(name: bytes) -> bool:
    """Whether a topic of that name can have a record. Asked for each record that is met, so answers are remembered."""
    if name in _known:
        return True
    if _STORED.fullmatch(name) is None:
        return False
    if len(_known) >= _KNOWN_MAX:
        _known.clear()
    _known.add(name)
    return True


def check_stored(name: object, path: str) -> str:
    """Return the name of a topic that a file says.

    Raises:
        StoreUnreadable: No topic can have it; `path` and name are in the sentence.
    """
    if is_stored(name):
        return str(name)
    raise StoreUnreadable(
        f"{path} has the topic {str(name)[:_SHOWN_CHARS]!r}, which is not a valid topic name: 1 to "
        f"{STORED_BYTES_MAX} of the characters %|a-zA-Z0-9_- are allowed. Nothing was changed; restore a "
        "backup that you trust, or remove that name from the file"
    )


def queue_folder(root: str, topic: str, queue_id: int) -> str:
    """Return the folder of a queue's files: the one place where a topic's name becomes a path.

    Raises:
        StoreUnreadable: It is not a valid topic name.
    """
    return f"{root}/{queue_path(topic, queue_id)}"


def queue_path(topic: str, queue_id: int) -> str:
    """Return the same, relative to the store. Raises the same."""
    return f"consumequeue/{check_stored(topic, 'a queue')}/{queue_id:d}"


def is_number(name: str) -> bool:
    """Whether a file's name is a number: ASCII digits alone, since others are digits, too, and not of our names."""
    return name.isascii() and name.isdecimal()
