"""How often listeners failed which messages, kept through restarts: `pyddmq/consumer_retries.json`, checksummed.

Only unfinished messages that failed at least once are here; a queue's entries go when its committed offset passes
them. So the file is bounded by what consumers have under way: a batch per queue for orderly ones, `span_max` offsets
per queue for concurrent ones. It is written before the redelivery that a failure causes.

A damaged or unreadable file costs the counts and nothing else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from broker.consumer.counters import SAVE_ERRORS
from broker.errors import NO_SPACE, StoreUnreadable
from broker.runtime.bundle import Runtime
from broker.runtime.sealed_file import SealedFile

FILE = "pyddmq/consumer_retries.json"
_VERSION = 1

Key = tuple[str, str, int]
"""Group, topic and queue id."""


class Retries(NamedTuple):
    """What is known of a message that failed.

    `physical` is its commit-log offset: after a truncation an offset may name another message (D11).
    `dead_letter_from` is where in the dead-letter queue its record may stand, -1 while no dead letter of it was begun.
    """

    physical: int
    times: int
    dead_letter_from: int = -1


class RetryCounts:
    """The table of one store."""

    def __init__(self, root: str, runtime: Runtime) -> None:
        self._file = SealedFile(runtime.disk, f"{root}/{FILE}")
        self._scheduler = runtime.scheduler
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._table: dict[Key, dict[int, Retries]] = {}
        self._dirty = self._asked = False
        runtime.disk.make_folder(f"{root}/pyddmq")
        try:
            self._take(self._file.load() or {"version": _VERSION, "queues": []})
        except (StoreUnreadable, KeyError, TypeError, ValueError) as error:
            self._table.clear()
            self._metrics.counter(SAVE_ERRORS, FILE).add()
            lost = "how often messages had failed"
            self._limited_log.note("consumer_retries_unreadable", error=str(error), lost=lost)

    def _take(self, content: Any) -> None:
        if content["version"] != _VERSION:
            raise ValueError(f"{self._file.path} has version {content['version']}; this program knows {_VERSION}")
        for group, topic, queue_id, entries in content["queues"]:
            self._table[group, topic, queue_id] = {offset: Retries(*rest) for offset, *rest in entries}

    def of(self, key: Key, offset: int, physical: int) -> Retries:
        """Return what is known of a message; no failure when nothing is."""
        known = self._table.get(key, {}).get(offset)
        return known if known is not None and known.physical == physical else Retries(physical, 0)

    def note(self, key: Key, offset: int, retries: Retries) -> None:
        """Change what is known; written at the end of the turn, or by `save`."""
        self._table.setdefault(key, {})[offset] = retries
        self._changed()

    def forget_below(self, key: Key, offset: int) -> None:
        """Drop what is finished for good."""
        entries = self._table.get(key)
        if not entries:
            return
        for each in [each for each in entries if each < offset]:
            del entries[each]
        if not entries:
            del self._table[key]
        # Stale entries do no harm; the next write leaves them out.
        self._dirty = True

    def _changed(self) -> None:
        self._dirty = True
        if not self._asked:
            self._asked = True
            self._scheduler.call_soon(self.save)

    def save(self) -> bool:
        """Write what changed; whether the file says now what memory does. A failure is counted and tried again."""
        self._asked = False
        if not self._dirty:
            return True
        queues = [
            [*key, [[offset, *entry] for offset, entry in sorted(entries.items())]]
            for key, entries in sorted(self._table.items())
        ]
        try:
            self._file.save({"version": _VERSION, "queues": queues})
        except OSError as error:
            self._metrics.counter(SAVE_ERRORS, FILE).add()
            self._limited_log.note("consumer_retries_not_written", error=str(error), full=error.errno in NO_SPACE)
            return False
        self._dirty = False
        return True
