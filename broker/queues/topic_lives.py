"""Topics that were deleted or made by hand: `pyddmq/topic_lives.json`.

The log keeps the records of a deleted topic until retention takes them, and a topic may be made again under its name.
So that neither a queue rebuilt from the log nor an offset remembered by any client can show a message of an earlier
life, this file keeps, forever and per name, where in the log the present life begins and the first offset of each of
its queues. Offsets continue behind those of the earlier life (D11; RocketMQ begins at 0 again and serves old units),
where the next queue file begins: what a file holds before its queue's first unit would be messages to RocketMQ.

Writing an entry with `deleted` is the commit point of a deletion: what a stop leaves half done after it is finished by
the next opening.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from broker.errors import REPAIR_ADVICE, StoreUnreadable
from broker.runtime.file_writes import FileWrite, at_once
from broker.runtime.names import check_stored
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLife:
    """What is known of one name.

    Attributes:
        deleted: The topic does not exist now.
        served: It takes publishes although no configuration lists it: it was made through the admin port.
        begins_at: Commit-log offset before which its records belong to earlier lives.
        bases: First offset of the present life, by queue id; 0 for queues beyond the list.
        ends: Where the earlier life ended, likewise; the part between the two never held anything. Stores of format 1
            have none: their bases were the ends.
    """

    deleted: bool = False
    served: bool = False
    begins_at: int = 0
    bases: tuple[int, ...] = ()
    ends: tuple[int, ...] = ()

    def end(self, queue_id: int) -> int:
        """Where the earlier life of a queue ended."""
        known = self.ends if queue_id < len(self.ends) else self.bases
        return known[queue_id] if queue_id < len(known) else 0


NO_LIFE = TopicLife()
"""Of a name of which nothing is known."""
_OFFSET_MAX = 1 << 62


def _life(entry: dict[str, Any]) -> TopicLife:
    life = TopicLife(**{**entry, "bases": tuple(entry["bases"]), "ends": tuple(entry.get("ends", ()))})
    if not all(type(each) is int and 0 <= each <= _OFFSET_MAX for each in (life.begins_at, *life.bases, *life.ends)):
        raise ValueError(f"{life.begins_at!r}, {life.bases!r} and {life.ends!r} are not valid offsets")
    return life


class TopicLives:
    """The file, and what it says.

    Attributes:
        begins: Commit-log offset at which the present life begins, by name in UTF-8; only names with an earlier one.
    """

    def __init__(self, root: str, *, disk: Disk, queue_file_units: int) -> None:
        self._disk = disk
        self._file_units = queue_file_units
        self._file = SealedFile(disk, f"{root}/pyddmq/topic_lives.json")
        self._lives: dict[str, TopicLife] = {}
        self.begins: dict[bytes, int] = {}

    def load(self) -> None:
        """Read the file.

        Raises:
            StoreUnreadable: It is damaged, has a shape of its own, or a name that no topic can have.
        """
        content: dict[str, dict[str, Any]] = self._file.load() or {}
        try:
            self._lives = {check_stored(name, self._file.path): _life(entry) for name, entry in content.items()}
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StoreUnreadable(f"{self._file.path} has an invalid structure ({error}); {REPAIR_ADVICE}") from error
        self._index()

    def of(self, name: str) -> TopicLife:
        """Return what is known of a name; an ordinary life when nothing is."""
        return self._lives.get(name, NO_LIFE)

    def base(self, name: str, queue_id: int) -> int:
        """First offset of a queue's present life."""
        bases = self.of(name).bases
        return bases[queue_id] if queue_id < len(bases) else 0

    @property
    def deleted(self) -> list[str]:
        """Names of topics that are deleted now."""
        return [name for name, life in self._lives.items() if life.deleted]

    @property
    def served(self) -> list[str]:
        """Names of topics that are served although no configuration may list them."""
        return [name for name, life in self._lives.items() if life.served and not life.deleted]

    def deleting(self, name: str, begins_at: int, ends: Sequence[int]) -> FileWrite:
        """Note, durably, that a topic is deleted whose queues ended at these offsets. Raises OSError."""
        old = self.of(name)
        # A life with fewer queues than the one before does not forget where that one's others ended.
        bases = (*map(self._behind, ends), *old.bases[len(ends) :])
        # Nor does one that took no message, in any of its queues.
        stood = (old.end(number) if end == self.base(name, number) else end for number, end in enumerate(ends))
        last = (*stood, *map(old.end, range(len(ends), len(bases))))
        life = TopicLife(deleted=True, begins_at=begins_at, bases=bases, ends=last)
        yield from self._writing({**self._lives, name: life})

    def align(self, empty: Callable[[str, int], bool]) -> list[str]:
        """Move first offsets that a store of format 1 has inside a queue file to the next file's, which is empty.

        Args:
            empty: Whether the present life of a topic's queue has no message yet.

        Returns:
            Names of the topics whose bases moved.

        Raises:
            OSError: The file cannot be written.
        """
        moved = {}
        for name, life in self._lives.items():
            bases = tuple(
                self._behind(base) if life.deleted or empty(name, number) else base
                for number, base in enumerate(life.bases)
            )
            if bases != life.bases:
                ends = tuple(map(life.end, range(len(bases))))
                moved[name] = replace(life, bases=bases, ends=ends)
        if moved:
            self._save({**self._lives, **moved})
        return list(moved)

    def _behind(self, end: int) -> int:
        """First offset of the first queue file that begins at `end` or behind it."""
        return -(-end // self._file_units) * self._file_units

    def revive(self, names: Iterable[str]) -> None:
        """Note, durably and in one write, that those of the topics that are deleted are made again. Raises OSError."""
        at_once(self._disk, self.reviving(names))

    def reviving(self, names: Iterable[str]) -> FileWrite:
        """`revive` in steps. Raises the same."""
        revived = {name: replace(self.of(name), deleted=False) for name in names if self.of(name).deleted}
        if revived:
            yield from self._writing({**self._lives, **revived})

    def serve(self, name: str) -> None:
        """Note, durably, that a topic takes publishes without a configuration. Raises OSError."""
        if not self.of(name).served:
            self._save({**self._lives, name: replace(self.of(name), served=True)})

    def cut(self, log_end: int) -> None:
        """Follow a log that recovery found to end earlier: what is appended next belongs to present lives.

        Raises:
            OSError: The file cannot be written.
        """
        if any(begins > log_end for begins in self.begins.values()):
            lives = self._lives.items()
            self._save({name: replace(life, begins_at=min(life.begins_at, log_end)) for name, life in lives})

    def _save(self, lives: Mapping[str, TopicLife]) -> None:
        at_once(self._disk, self._writing(lives))

    def _writing(self, lives: Mapping[str, TopicLife]) -> FileWrite:
        yield from self._file.writing({name: asdict(life) for name, life in lives.items()})
        self._lives = dict(lives)
        self._index()

    def _index(self) -> None:
        self.begins = {name.encode(): life.begins_at for name, life in self._lives.items() if life.begins_at}
