"""What the core of a store has to know of a feature: plain data and small functions, given to `Store.open`.

The core keeps records, queues and topics; delay levels, timers, transactions and the like are features built on it.
Some of what the core does by itself depends on them: the third field of a queue's unit, what a batch mark means in a
topic of theirs, which records of the broker's own may use the reserved space, and how `Store.put` makes a message wait.
A `Feature` says that; the core imports none. `broker.features` has all of them, docs/architecture.md the rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from broker.errors import FeatureMissing
from broker.feature_marks import needed_by
from broker.format.java import tags_code
from broker.format.properties import find_property
from broker.format.wait_properties import Wait
from broker.log.put import Put
from broker.options import StoreOptions
from broker.queues.topics import Topic
from broker.runtime.bundle import Runtime
from broker.runtime.seams import Disk

UnitCode = Callable[[bytes, int], int | None]
"""From property block and store timestamp (ms) of a record to the third field of its unit; None: its tags' code."""

CarriesCopy = Callable[[bytes], bool]
"""From the property block of a record to whether a batch mark in it is another record's, copied with the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """What a feature that makes messages wait needs of a store.

    Attributes:
        options: Of the store.
        store_ms: Returns its latest store timestamp.
        create_topic: Returns a topic, made or grown (`Store.create_topic`).
    """

    options: StoreOptions
    store_ms: Callable[[], int]
    create_topic: Callable[..., Topic]


class WaitingPuts(Protocol):
    """Makes messages of one store wait in one way."""

    def waiting(self, put: Put, wait: Wait) -> Put | None:
        """Return what to append in place of a message so that it waits; None when it does not wait in this way.

        Args:
            put: The message as it would be appended without waiting.
            wait: What it waits for: one of the fields, the others are 0.

        Raises:
            MessageRefused, DiskFull, StoreFailed: It cannot wait so.
        """


class MakeWaiting(Protocol):
    """Makes what lets the messages of a store wait; nothing is read or written."""

    def __call__(self, home: Home, runtime: Runtime) -> WaitingPuts:
        """Return it for a store that is about to be opened."""


class NoteMarked(Protocol):
    """Keeps where recovery found records with a feature's mark, before the first checkpoint that leaves them behind."""

    def __call__(self, root: str, physicals: Sequence[int], *, disk: Disk) -> None:
        """Keep their commit-log offsets, durably. Raises OSError."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemTopic:
    """How the core treats records of a topic that a feature keeps for itself.

    Attributes:
        name: Its name.
        published: It holds what clients publish, so its records are no records of the broker's own, which may use the
            space set aside for them.
        unit_code: Third field of a record's unit; None where that is the code of its tags, as in topics of users.
        carries_copy: Whether a batch mark in a record is a copy; None where that is so when it has a `REAL_TOPIC`.
    """

    name: str
    published: bool = False
    unit_code: UnitCode | None = None
    carries_copy: CarriesCopy | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Feature:
    """One feature, as a store is opened with it.

    Attributes:
        name: As in `broker.feature_marks`, which says by what a store is known to need it.
        needs: Names of features without which it does not work.
        topics: Its system topics, as far as the core treats them in a way of their own.
        mark: Bytes in the property block of records in topics of users for which recovery looks; b"" for none.
        note_marked: Told where it found some, at each opening.
        make_waiting: Makes what lets messages wait; the open store has it as `Store.waiting(its class)`.
    """

    name: str
    needs: tuple[str, ...] = ()
    topics: tuple[SystemTopic, ...] = ()
    mark: bytes = b""
    note_marked: NoteMarked | None = None
    make_waiting: MakeWaiting | None = None


class OpenedFeatures:
    """The features that a store is opened with, looked up once: what is asked for each record is a dict or a set.

    Attributes:
        features: As given.
        unit_codes: By topic name in bytes.
        copies: Likewise.
        marks: What recovery looks for in property blocks.
        published: Names of system topics that hold what clients publish.

    Raises:
        ValueError: One is given twice, or lacks another that it needs.
    """

    __slots__ = ("_names", "copies", "features", "marks", "published", "unit_codes")

    def __init__(self, features: Sequence[Feature]) -> None:
        topics = [topic for feature in features for topic in feature.topics]
        self.features = tuple(features)
        self.unit_codes = {each.name.encode(): each.unit_code for each in topics if each.unit_code is not None}
        self.copies = {each.name.encode(): each.carries_copy for each in topics if each.carries_copy is not None}
        self.marks = tuple(feature.mark for feature in features if feature.mark)
        self.published = frozenset(topic.name for topic in topics if topic.published)
        self._names = frozenset(feature.name for feature in features)
        if len(self._names) != len(self.features):
            raise ValueError(f"a feature is passed twice: {', '.join(feature.name for feature in features)}")
        for feature in features:
            for name in feature.needs:
                if name not in self._names:
                    raise ValueError(f"the feature {feature.name} needs the feature {name}; pass both")

    def check(self, root: str, *, topics: Sequence[str] = (), files: Sequence[str] = ()) -> None:
        """Check that all features are given that a store needs which has these topics and files.

        Raises:
            FeatureMissing: One is not.
        """
        needed = needed_by(topics=topics, files=files)
        missing = {what: name for what, name in needed.items() if name not in self._names}
        if missing:
            raise FeatureMissing(root, missing)


def unit_code(topic: bytes, properties: bytes, store_ms: int, codes: Mapping[bytes, UnitCode]) -> int:
    """Return the third field of a record's unit: the code of its tags, or what the feature of its topic puts there.

    Args:
        topic: Of the record.
        properties: Its property block.
        store_ms: Its store timestamp.
        codes: `OpenedFeatures.unit_codes`.
    """
    own = codes.get(topic)
    if own is not None:
        code = own(properties, store_ms)
        if code is not None:
            return code
    return tags_code(find_property(properties, b"TAGS") or b"")
