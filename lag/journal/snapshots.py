"""A snapshot of all queues, with what waits by its own time and what happened, as the payload of a block; and back.

The summaries of a minute or an hour stand in blocks of the same form, with other tables. No I/O. Layout: kind (varint),
base moment and sequence as differences from the block before (signed; of the file's first block from 0), then sections:
id, length, bytes. docs/lag-journal.md has the ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from lag.blocks import BlockGap, GapKind
from lag.journal.column_rows import Piece, PieceDecoder
from lag.journal.columns import QUEUES, SCHEDULED, Key, Row, Table
from lag.journal.rows import RowDecoder, RowEncoder, count_rows
from lag.samples import EventKind, LagEvent
from lag.varints import Taker, put_signed, put_text, put_varint

SNAPSHOT: Final = 1
_QUEUES, _SCHEDULED, _EVENTS, _EPOCH, _MISSING = range(1, 6)
_EPOCH_BYTES = 8
_EVENT_CODES: Final = {
    EventKind.START: 1,
    EventKind.STOP: 2,
    EventKind.RELOAD: 3,
    EventKind.PAUSE: 4,
    EventKind.RESUME: 5,
    EventKind.RESET: 6,
    EventKind.RETENTION: 7,
    EventKind.LEFT: 8,
    EventKind.CLOCK: 9,
}
_EVENT_KINDS: Final = {code: kind for kind, code in _EVENT_CODES.items()}
assert len(_EVENT_KINDS) == len(EventKind), "each kind has a code of its own"


class SnapshotEncoder:
    """Encodes the snapshots of one file, one after the other; rows of one may come in slices."""

    def __init__(self, queues: Table = QUEUES, scheduled: Table = SCHEDULED) -> None:
        self._queues = RowEncoder(queues)
        self._scheduled = RowEncoder(scheduled)
        self._base_ms = self._sequence = 0
        self._epoch: int | None = None
        self._head = bytearray()

    def begin(self, base_ms: int, sequence: int, epoch: int | None = None) -> None:
        """Begin a snapshot.

        Args:
            base_ms: Its moment.
            sequence: Its number in its epoch.
            epoch: That epoch; None: the file's.
        """
        head = self._head = bytearray([SNAPSHOT])
        put_signed(head, base_ms - self._base_ms)
        put_signed(head, sequence - self._sequence)
        self._base_ms, self._sequence = base_ms, sequence
        if epoch != self._epoch and epoch is not None:
            _put_section(head, _EPOCH, epoch.to_bytes(_EPOCH_BYTES, "little"))
            self._epoch = epoch
        self._queues.begin(base_ms)

    def add(self, key: Key, time_ms: int, record: Any) -> None:
        """Add the row of a queue: (group, topic, queue), its moment, and what has the table's values as attributes."""
        self._queues.add(key, time_ms, record)

    def end(
        self,
        scheduled: Iterable[tuple[Key, int, Any]] = (),
        events: Iterable[LagEvent] = (),
        missing: Iterable[BlockGap] = (),
    ) -> bytes:
        """Return the payload.

        Args:
            scheduled: Rows of what waits: (kind, topic, level), moment, values as attributes.
            events: What happened.
            missing: What is missing before it, in the files that it was made from.
        """
        out = self._head
        _put_section(out, _QUEUES, self._queues.end())
        waiting = self._scheduled
        waiting.begin(self._base_ms)
        count = 0
        for key, time_ms, record in scheduled:
            waiting.add(key, time_ms, record)
            count += 1
        if count:
            _put_section(out, _SCHEDULED, waiting.end())
        for number, reported in ((_EVENTS, encode_events(events, self._base_ms)), (_MISSING, _encode_missing(missing))):
            if reported:
                _put_section(out, number, reported)
        return bytes(out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A block of snapshots; its rows are decoded as they are taken.

    Attributes:
        time_ms: Base moment.
        sequence: Its number in its epoch.
        epoch: That epoch; None: the file's.
        sections: Bytes by id.
    """

    time_ms: int
    sequence: int
    epoch: int | None
    sections: dict[int, bytes]


class SnapshotDecoder:
    """Decodes the snapshots of one file, in order: all rows of one must be taken before the next is opened.

    Rows of queues are taken by `queues` from all snapshots of the file, or by `pieces` from all of them.
    """

    def __init__(self, queues: Table = QUEUES, scheduled: Table = SCHEDULED) -> None:
        self._queues = RowDecoder(queues)
        self._pieces = PieceDecoder(queues)
        self._scheduled = RowDecoder(scheduled)
        self._base_ms = self._sequence = 0
        self._epoch: int | None = None

    def open(self, payload: bytes) -> Snapshot:
        """Return what a payload holds, its rows not decoded. Raises ValueError: it is no snapshot."""
        taker = Taker(payload)
        kind = taker.varint()
        if kind != SNAPSHOT:
            raise ValueError(f"a block of kind {kind}")
        self._base_ms += taker.signed()
        self._sequence += taker.signed()
        sections = take_sections(taker)
        if _EPOCH in sections:
            self._epoch = int.from_bytes(sections[_EPOCH], "little")
        return Snapshot(time_ms=self._base_ms, sequence=self._sequence, epoch=self._epoch, sections=sections)

    @staticmethod
    def count(snapshot: Snapshot) -> int:
        """Return how many rows of queues a snapshot has. Raises ValueError: damaged behind a right sum."""
        section = snapshot.sections.get(_QUEUES)
        return 0 if section is None else count_rows(section)

    def queues(self, snapshot: Snapshot) -> Iterator[tuple[Key, int, Row]]:
        """Yield (group, topic, queue), moment and values. Raises ValueError: damaged behind a right sum."""
        if _QUEUES in snapshot.sections:
            yield from self._queues.rows(snapshot.sections[_QUEUES], snapshot.time_ms)

    def pieces(self, snapshot: Snapshot) -> list[Piece]:
        """Return the same rows by columns. Raises likewise."""
        section = snapshot.sections.get(_QUEUES)
        return [] if section is None else self._pieces.pieces(section, snapshot.time_ms)

    def scheduled(self, snapshot: Snapshot) -> Iterator[tuple[Key, int, Row]]:
        """Yield (kind, topic, level), moment and values. Raises likewise."""
        if _SCHEDULED in snapshot.sections:
            yield from self._scheduled.rows(snapshot.sections[_SCHEDULED], snapshot.time_ms)

    def events(self, snapshot: Snapshot) -> list[LagEvent]:
        """Return its events. Raises likewise."""
        return decode_events(snapshot.sections.get(_EVENTS, b""), snapshot.time_ms)

    def missing(self, snapshot: Snapshot) -> list[BlockGap]:
        """Return what is missing before it. Raises likewise."""
        taker, found = Taker(snapshot.sections.get(_MISSING, b"")), []
        while taker.at < taker.end:
            kind, path, position, reason = GapKind(taker.text()), taker.text(), taker.varint(), taker.text()
            moments = [taker.signed() if taker.varint() else None for _ in range(2)]
            found.append(BlockGap(kind, path, position, reason, *moments))
        return found


def _encode_missing(missing: Iterable[BlockGap]) -> bytes:
    out = bytearray()
    for each in missing:
        put_text(out, each.kind.value)
        put_text(out, each.path)
        put_varint(out, each.position)
        put_text(out, each.reason)
        for moment in (each.from_ms, each.to_ms):
            put_varint(out, moment is not None)
            if moment is not None:
                put_signed(out, moment)
    return bytes(out)


def _put_section(out: bytearray, number: int, data: bytes) -> None:
    put_varint(out, number)
    put_varint(out, len(data))
    out += data


def take_sections(taker: Taker) -> dict[int, bytes]:
    """Take all sections that are left. Raises ValueError: one runs over the end."""
    found = {}
    while taker.at < taker.end:
        number = taker.varint()
        found[number] = taker.raw(taker.varint())
    return found


def encode_events(events: Iterable[LagEvent], base_ms: int) -> bytes:
    """Return events as bytes; empty for none."""
    out = bytearray()
    for event in events:
        put_varint(out, _EVENT_CODES[event.kind])
        put_signed(out, event.time_ms - base_ms)
        put_text(out, event.group)
        put_text(out, event.topic)
        put_signed(out, event.queue)
        put_text(out, event.detail)
    return bytes(out)


def decode_events(data: bytes, base_ms: int) -> list[LagEvent]:
    """Return events from bytes. Raises ValueError: they are none."""
    taker, found = Taker(data), []
    while taker.at < taker.end:
        code = taker.varint()
        if code not in _EVENT_KINDS:
            raise ValueError(f"an event of unknown kind {code}")
        found.append(
            LagEvent(
                kind=_EVENT_KINDS[code],
                time_ms=base_ms + taker.signed(),
                group=taker.text(),
                topic=taker.text(),
                queue=taker.signed(),
                detail=taker.text(),
            )
        )
    return found
