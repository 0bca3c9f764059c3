"""Stretches of a queue, read for clients that keep offsets of their own; see `Broker.read_stretch`.

As a pull's, the messages of a reply are cut out of the log as they stand there: units are looked up in chunks, records
located in one call per chunk, and nothing is made per message but the slices. What is unusual (a filter by tags, stress
tests, packed bodies, damage) is looked at one by one.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from broker.errors import BodyUnusable, DamagedRecord, RecordGone
from broker.format.body import BodyPacked, body_limit, locate_body, locate_unpacked
from broker.format.java import tags_code
from broker.format.locating import message_keys
from broker.format.properties import find_property
from broker.format.record import HEADER_BYTES, Located, born_timestamp, store_timestamp
from broker.queues.consume_queue import FILLER, ConsumeQueue
from broker.store import Store
from upstream.embedded.retries import why_unreadable
from upstream.embedded.source import PRESSURE_NAME, is_pressure
from upstream.source import MessageFilter, Stretch

CHUNK_UNITS = 1_024
"""Units looked up at once."""
UNITS_MAX = 16_384
"""Units of one call at most, wanted or not: 10 ms or so where none of them is."""
REPLY_BYTES = 64
"""What a message takes in a reply beside its record, at most: heads of fields, and its times."""

_times = struct.Struct(">q8xq").unpack_from
_BORN_AT = 40
"""Where the two times stand in a record whose hosts are IPv4, and so have HEADER_BYTES in front of their body."""

_Unit = tuple[int, int, int]


class StretchReader:
    """Reads stretches of the queues of one store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._body_bytes_max = body_limit(store.options.message_bytes_max)

    def read(
        self, queue: ConsumeQueue, start: int, count_max: int, bytes_max: int, wanted: MessageFilter, *, times: bool
    ) -> Stretch:
        """See `Broker.read_stretch`."""
        codes = None if wanted.tags is None else frozenset(map(tags_code, wanted.tags))
        found = Stretch([], [], start, 0, [])
        room, looked_at = bytes_max, 0
        at, end = start, queue.max_offset
        while at < end and len(found.messages) < count_max and room > 0 and looked_at < UNITS_MAX:
            count = count_max - len(found.messages)
            units = queue.read(at, min(count if codes is None else CHUNK_UNITS, CHUNK_UNITS, UNITS_MAX - looked_at))
            if codes is not None:
                # Those between the last one that is wanted and has its place and the next are looked at again.
                places = [place for place, unit in enumerate(units) if unit[2] in codes]
                units = units if len(places) < count else units[: places[count - 1] + 1]
            sums = list(accumulate(unit[1] + REPLY_BYTES for unit in units))
            fit = bisect_right(sums, room)
            if not fit:
                if found.messages:
                    break
                fit = 1
            before = len(found.messages)
            self._take(units[:fit], at, wanted, codes, found, times)
            looked_at += fit
            at += fit
            # Those that were passed over take no room.
            room -= sums[fit - 1] if len(found.messages) - before == fit else self._size(found, before)
        return found._replace(next_offset=at, bytes=bytes_max - room)

    @staticmethod
    def _size(found: Stretch, start: int) -> int:
        return sum(located[4] - located[1] + REPLY_BYTES for _, located in found.messages[start:])

    def _take(  # noqa: PLR0917
        self,
        units: Sequence[_Unit],
        start: int,
        wanted: MessageFilter,
        codes: frozenset[int] | None,
        found: Stretch,
        times: bool,
    ) -> None:
        """Take the wanted ones of some units, the first of which is at the offset `start`."""
        if codes is None and FILLER not in units:
            try:
                located = self._store.locate(units, locate_unpacked)
            except (DamagedRecord, RecordGone, BodyPacked):
                located = []
            if located and (wanted.pressure_traffic or message_keys(located, PRESSURE_NAME) is not None):
                found.messages.extend(enumerate(located, start))
                if times:
                    found.times.extend(map(_times_of, units, located))
                return
        for offset, unit in enumerate(units, start):
            reason = self._take_one(unit, offset, wanted, codes, found, times)
            if reason is not None:
                passed = found.passed
                if passed and passed[-1][1:] == (offset, reason):
                    passed[-1] = (passed[-1][0], offset + 1, reason)
                else:
                    passed.append((offset, offset + 1, reason))

    def _take_one(  # noqa: PLR0917
        self, unit: _Unit, offset: int, wanted: MessageFilter, codes: frozenset[int] | None, found: Stretch, times: bool
    ) -> str | None:
        """Take one message; or return why not."""
        physical, size, code = unit
        if unit == FILLER:
            return "damaged"
        if codes is not None and code not in codes:
            return "tag_filter"
        try:
            record = self._store.read(physical, size)
            located = locate_body(record, self._body_bytes_max)
        except (DamagedRecord, RecordGone) as error:
            return why_unreadable(error)
        except BodyUnusable as error:
            return error.reason
        view, _, _, block_at, end = located
        block = view[block_at:end].tobytes()
        # Codes of tags may collide.
        if wanted.tags is not None and find_property(block, b"TAGS") not in wanted.tags:
            return "tag_filter"
        if not wanted.pressure_traffic and is_pressure(block):
            return "pressure_traffic"
        found.messages.append((offset, located))
        if times:
            found.times.append((store_timestamp(record), born_timestamp(record)))
        return None


def _times_of(unit: _Unit, located: Located) -> tuple[int, int]:
    """Stored and born, of a record that is in its segment or in a view of its own."""
    view, body_at, _, _, end = located
    begin = end - unit[1]
    if body_at - begin != HEADER_BYTES:
        record = view[begin:end]
        return store_timestamp(record), born_timestamp(record)
    born, stored = _times(view, begin + _BORN_AT)
    return stored, born
