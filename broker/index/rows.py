"""Index entries of many records at once: what the files take.

Records come from a walk of the log, or as the encoder made them (`broker.index.recent_records`); both give the same
entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.index.keys import KeyHasher, keys_of
from broker.log.walk import Walked
from broker.runtime.accelerators import accelerated

_TAIL_TOPIC_BYTES_MAX = 255
_Columns = tuple[list[int], list[int], list[int]]
"""The columns of `Rows`."""


class Rows(NamedTuple):
    """Entries in log order: key hashes (0 to 2^31 - 1), commit-log offsets, store timestamps in ms."""

    hashes: list[int]
    physicals: list[int]
    stamps: list[int]

    @property
    def length(self) -> int:
        """Number of entries; `len` counts the columns."""
        return len(self.hashes)


class Fed(NamedTuple):
    """Records as the encoder made them, by columns; none is a rollback.

    Each tail is what follows a record's body up to the sum: topic with its length, two bytes, property block.
    """

    tails: list[bytes]
    physicals: list[int]
    stamps: list[int]


def _fed_rows(tails: list[bytes], physicals: list[int], stamps: list[int], hasher: KeyHasher) -> _Columns:
    """Make the entries of tails; `broker.index.rows_accelerator` does the same.

    Args:
        tails: As in `Fed`.
        physicals: Commit-log offset of each.
        stamps: Store timestamp of each.
        hasher: Hashes the keys.
    """
    topics = [tail[1 : 1 + tail[0]] for tail in tails]
    return _rows(topics, [tail[3 + tail[0] :] for tail in tails], physicals, stamps, hasher)


def _rows(
    topics: list[bytes], blocks: list[bytes], physicals: list[int], stamps: list[int], hasher: KeyHasher
) -> _Columns:
    """Make the entries of records with these topics and property blocks."""
    keys = [keys_of(block) for block in blocks]
    places = [place for place, each in enumerate(keys) for _ in each]
    return (
        hasher.hashes([topics[place] for place in places], [key for each in keys for key in each]),
        [physicals[place] for place in places],
        [stamps[place] for place in places],
    )


_fed = accelerated("broker.index.rows_accelerator", "fed_rows", _fed_rows)


class RowMaker:
    """Makes entries; remembers the topics' part of hashes."""

    def __init__(self) -> None:
        self._hasher = KeyHasher()

    def of_records(self, records: Sequence[Walked]) -> Rows:
        """Return the entries of records that a walk found."""
        kept = [record for record in records if not record.rollback]
        topics, blocks = [record.topic for record in kept], [record.properties for record in kept]
        physicals, stamps = [record.physical for record in kept], [record.store_ms for record in kept]
        if max(map(len, topics), default=0) > _TAIL_TOPIC_BYTES_MAX:
            # Another program's records: the length of such a topic does not fit into a tail of ours.
            return Rows(*_rows(topics, blocks, physicals, stamps, self._hasher))
        tails = [b"%c%b\0\0%b" % (len(topic), topic, block) for topic, block in zip(topics, blocks, strict=True)]
        return self.of_fed(Fed(tails, physicals, stamps))

    def of_fed(self, fed: Fed) -> Rows:
        """Return the entries of records that the encoder made."""
        return Rows(*_fed(*fed, self._hasher))
