"""Topics that were deleted or made by hand: `pyddmq/topic_lives.json`.

The log keeps the records of a deleted topic until retention takes them, and a topic may be made again under its name.
So that neither a queue made anew from the log nor an offset remembered by anybody can show a message of an earlier
life, this file keeps, for ever and per name, where in the log the present life begins and the first offset of each of
its queues: offsets go on where the earlier life ended (D11; RocketMQ begins at 0 again and serves old units).

Writing an entry with `deleted` is the commit point of a deletion: what a stop leaves half done after it is finished by
the next opening.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from broker.saving import Saving, at_once
from broker.seams import Disk
from broker.state_file import SealedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLife:
    """What is known of one name.

    Attributes:
        deleted: There is no such topic now.
        served: It takes publishes although no configuration lists it: it was made through the admin port.
        begins_at: Commit-log offset before which its records belong to earlier lives.
        bases: First offset of the present life, by queue id; 0 for queues beyond the list.
    """

    deleted: bool = False
    served: bool = False
    begins_at: int = 0
    bases: tuple[int, ...] = ()


_NONE = TopicLife()


class TopicLives:
    """The file, and what it says.

    Attributes:
        begins: Commit-log offset at which the present life begins, by name in UTF-8; only names with an earlier one.
    """

    def __init__(self, root: str, *, disk: Disk) -> None:
        self._disk = disk
        self._file = SealedFile(disk, f"{root}/pyddmq/topic_lives.json")
        self._lives: dict[str, TopicLife] = {}
        self.begins: dict[bytes, int] = {}

    def load(self) -> None:
        """Read the file.

        Raises:
            StoreUnreadable: It is damaged.
        """
        content: dict[str, dict[str, Any]] = self._file.load() or {}
        self._lives = {name: TopicLife(**{**entry, "bases": tuple(entry["bases"])}) for name, entry in content.items()}
        self._index()

    def of(self, name: str) -> TopicLife:
        """Return what is known of a name; an ordinary life when nothing is."""
        return self._lives.get(name, _NONE)

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

    def burying(self, name: str, begins_at: int, ends: Sequence[int]) -> Saving:
        """Note, durably, that a topic is deleted whose queues ended at these offsets. Raises OSError."""
        old = self.of(name).bases
        # A life with fewer queues than the one before does not forget where that one's others ended.
        bases = (*ends, *old[len(ends) :])
        yield from self._saving({**self._lives, name: TopicLife(deleted=True, begins_at=begins_at, bases=bases)})

    def revive(self, name: str) -> None:
        """Note, durably, that a deleted topic is about to be made again. Raises OSError."""
        if self.of(name).deleted:
            self._save({**self._lives, name: replace(self.of(name), deleted=False)})

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
        at_once(self._disk, self._saving(lives))

    def _saving(self, lives: Mapping[str, TopicLife]) -> Saving:
        yield from self._file.saving({name: asdict(life) for name, life in lives.items()})
        self._lives = dict(lives)
        self._index()

    def _index(self) -> None:
        self.begins = {name.encode(): life.begins_at for name, life in self._lives.items() if life.begins_at}
