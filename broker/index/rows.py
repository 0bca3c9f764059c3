"""Index entries of many records at once, by columns: what the files take.

Records come from a walk of the log, or as the encoder made them (`broker.index.feed`); both give the same entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from broker.index.keys import KeyHasher, joined_keys, keys_of, unique_key_of, words_value_of
from broker.log.walk import Walked
from broker.runtime.accelerators import accelerated

_UNIQUE = b"UNIQ_KEY\x01"
_KEYS = b"KEYS\x01"


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

    Each tail is what stands behind a record's body up to the sum: topic with its length, two bytes, property block.
    """

    tails: list[bytes]
    unique_keys: list[bytes]
    physicals: list[int]
    stamps: list[int]


def _fed_none(
    tails: list[bytes], physicals: list[int], stamps: list[int], hasher: KeyHasher
) -> tuple[list[int], list[int], list[int]] | None:
    """Leave it to the Python; `broker.index.rows_accelerator` does it, record by record.

    Args:
        tails: As in `Fed`.
        physicals: Commit-log offset of each.
        stamps: Store timestamp of each.
        hasher: Hashes what is not ASCII.

    Returns:
        The columns of `Rows`, or None.
    """
    return None


_fed = accelerated("broker.index.rows_accelerator", "fed_rows", _fed_none)


class RowMaker:
    """Makes entries; remembers the topics' part of hashes."""

    def __init__(self) -> None:
        self._hasher = KeyHasher()

    def of_records(self, records: Sequence[Walked]) -> Rows:
        """Return the entries of what a walk found."""
        kept = [record for record in records if not record.rollback]
        if not kept:
            return Rows([], [], [])
        physicals, _, stamps, _, topics, blocks = map(list, zip(*kept, strict=True))
        return self._of_blocks(_shared(topics), blocks, physicals, stamps)

    def _of_blocks(
        self, topics: bytes | list[bytes], blocks: list[bytes], physicals: list[int], stamps: list[int]
    ) -> Rows:
        if any(block.count(_UNIQUE) > 1 for block in blocks):
            # Members of batches of RocketMQ's: the key that their producer was told stands before the batch's.
            return self._of_keys(topics, list(map(keys_of, blocks)), physicals, stamps)
        uniques = [unique_key_of(block) for block in blocks]
        words = [words_value_of(block) for block in blocks]
        return self._rows(topics, uniques, words, physicals, stamps)

    def of_fed(self, fed: Fed) -> Rows:
        """Return the entries of records that the encoder made."""
        found = _fed(fed.tails, fed.physicals, fed.stamps, self._hasher)
        return self._by_columns(fed) if found is None else Rows(*found)

    def _by_columns(self, fed: Fed) -> Rows:
        """Do `of_fed` in Python, where columns cost the least."""
        tails, uniques, physicals, stamps = fed
        if not tails:
            return Rows([], [], [])
        first = tails[0]
        block_at = 3 + first[0]
        prefix = first[: block_at - 2]
        joined = b"".join(tails)
        # Whatever lies between two texts in order begins as both do.
        if (
            min(tails).startswith(prefix)
            and max(tails).startswith(prefix)
            and joined.count(_UNIQUE) == len(tails)
            and joined.count(_KEYS) in (0, len(tails))
        ):
            words = _leading_words(tails, block_at, _KEYS in joined)
            if words is not None:
                return self._rows(prefix[1:], uniques, words, physicals, stamps)
        topics = [tail[1 : 1 + tail[0]] for tail in tails]
        return self._of_blocks(_shared(topics), [tail[3 + tail[0] :] for tail in tails], physicals, stamps)

    def _rows(
        self,
        topics: bytes | list[bytes],
        uniques: list[bytes],
        words: list[bytes],
        physicals: list[int],
        stamps: list[int],
    ) -> Rows:
        """Return the entries of records with these unique keys and values of KEYS, b"" for none."""
        key_hashes = self._hasher.hashes
        if all(uniques):
            if not any(words):
                return Rows(key_hashes(topics, uniques), physicals, stamps)
            if all(words) and b" " not in b"".join(words):
                rows = Rows(*([0] * (2 * len(uniques)) for _ in range(3)))
                rows.hashes[0::2] = key_hashes(topics, uniques)
                rows.hashes[1::2] = key_hashes(topics, words)
                rows.physicals[0::2] = rows.physicals[1::2] = physicals
                rows.stamps[0::2] = rows.stamps[1::2] = stamps
                return rows
        keys = [joined_keys(unique, value) for unique, value in zip(uniques, words, strict=True)]
        return self._of_keys(topics, keys, physicals, stamps)

    def _of_keys(
        self, topics: bytes | list[bytes], keys: list[list[bytes]], physicals: list[int], stamps: list[int]
    ) -> Rows:
        places = [place for place, each in enumerate(keys) for _ in each]
        return Rows(
            self._hasher.hashes(
                topics if isinstance(topics, bytes) else [topics[place] for place in places],
                [key for each in keys for key in each],
            ),
            [physicals[place] for place in places],
            [stamps[place] for place in places],
        )


def _shared(topics: list[bytes]) -> bytes | list[bytes]:
    return topics[0] if topics.count(topics[0]) == len(topics) else topics


def _leading_words(tails: list[bytes], block_at: int, there: bool) -> list[bytes] | None:
    """Return the value of KEYS of each, where it is the first property of all of them or of none."""
    if not there:
        return [b""] * len(tails)
    at = block_at + len(_KEYS)
    if not all(tail.startswith(_KEYS, block_at) for tail in tails):
        return None
    return [tail[at : tail.find(b"\x02", at)] for tail in tails]
