"""Which groups an operator has paused, kept through restarts.

`pyddmq/paused.json` holds the list, checksummed, and `paused-copy.json` the same again, for when the first is damaged.
It belongs to groups by name, so neither a reload nor a group's coming and going changes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import structlog

from broker.errors import StoreUnreadable
from broker.runtime.file_writes import FileWrite, Steps
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Clock, Disk

log = structlog.get_logger()

_VERSION = 1


class Pause(NamedTuple):
    """One pause.

    Attributes:
        since_ms: When it began, wall clock.
        who: Who asked for it.
    """

    since_ms: int
    who: str


class PauseConflict(Exception):
    """A topic cannot be resumed by itself while its whole group is paused."""


class Pauses:
    """The paused groups and topics of one node; changes are durable, and hold, when they have ended. One at a time."""

    def __init__(self, root: str, *, disk: Disk, clock: Clock) -> None:
        self._files = [SealedFile(disk, f"{root}/pyddmq/{name}") for name in ("paused.json", "paused-copy.json")]
        self._clock = clock
        self._table: dict[tuple[str, str | None], Pause] = {}

    @classmethod
    def open(cls, root: str, *, disk: Disk, clock: Clock) -> Pauses:
        """Read what is paused; nothing when nothing ever was.

        Raises:
            StoreUnreadable: Both copies are damaged.
            OSError: They cannot be read.
        """
        pauses = cls(root, disk=disk, clock=clock)
        damaged: StoreUnreadable | None = None
        for file in pauses._files:
            try:
                content = file.load()
                if content is not None:
                    pauses._take(content)
                    break
            except StoreUnreadable as error:
                log.error("pauses_damaged_copy_used", path=file.path)
                damaged = error
        else:
            if damaged is not None:
                text = (
                    "both copies of pyddmq/paused.json are damaged; delete them, start, and pause again what is to be"
                )
                raise StoreUnreadable(text) from damaged
        return pauses

    def _take(self, content: Any) -> None:
        try:
            self._table = {
                (each["group"], each["topic"]): Pause(each["sinceMs"], each["who"]) for each in content["paused"]
            }
        except (KeyError, TypeError) as error:
            raise StoreUnreadable("pyddmq/paused.json has a wrong shape") from error

    @property
    def paused(self) -> list[tuple[str, str | None]]:
        """What is paused: group, and topic of it or None for all of them."""
        return list(self._table)

    def of(self, group: str, topic: str) -> Pause | None:
        """Return the pause that holds for a topic of a group: the group's, or its own."""
        return self._table.get((group, None)) or self._table.get((group, topic))

    def pausing(self, group: str, topic: str | None, *, who: str) -> Steps[bool]:
        """Pause a group, or one topic of it; returns whether that changed anything.

        Raises:
            OSError: It could not be written; nothing has changed, and a restart may find it all the same.
        """
        if (group, topic) in self._table or (group, None) in self._table:
            return False
        yield from self._writing({**self._table, (group, topic): Pause(self._clock.wall_ms(), who)})
        return True

    def resuming(self, group: str, topic: str | None) -> Steps[bool]:
        """Resume a group with all its topics, or one topic; returns whether that changed anything.

        Raises:
            PauseConflict: One topic is asked for, and the whole group is paused.
            OSError: It could not be written; nothing has changed, and a restart may find it all the same.
        """
        if topic is not None and (group, None) in self._table:
            raise PauseConflict(f"The whole group {group} is paused; resume the group, then pause what is to stay so.")
        kept = {each: pause for each, pause in self._table.items() if each[0] != group or topic not in (None, each[1])}
        if len(kept) == len(self._table):
            return False
        yield from self._writing(kept)
        return True

    def _writing(self, table: dict[tuple[str, str | None], Pause]) -> FileWrite:
        content = {
            "version": _VERSION,
            "paused": [
                {"group": group, "topic": topic, "sinceMs": pause.since_ms, "who": pause.who}
                for (group, topic), pause in table.items()
            ],
        }
        first, second = self._files
        yield from first.writing(content)
        self._table = table
        try:
            yield from second.writing(content)
        except OSError as error:
            log.warning("pauses_copy_not_written", path=second.path, error=str(error))
