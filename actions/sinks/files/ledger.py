"""What a sink of files has to know after a kill, and what follows from it (D46).

Before bytes go to a file the ledger says which file, how long it was and will be, the sum of the new bytes, and the
offsets of the messages in them. Only then they are written, made durable, and the messages answered. So after a kill
at any moment a file is one of three:

- as long as it was, or longer but without the right new bytes: these messages were not written, or not whole. It is cut
  to what it was, and they are redelivered, since they were not answered.
- as long as it was to be, with the right sum: they are in it. It is cut there, and when one of them comes again (its
  answer was on its way, or lost with the power) it is answered without being written.
- shorter than it was: another program changed it. It is closed as it is, and that is said.

A file under its final name was closed: then the same is asked of that. Answers that a power loss may take back are no
older than `RECENT_MS`: offsets of so long stay in the ledger. They are forgotten once they came again, or after
`FORGET_SECONDS`, since who moves a group back wants its messages again; until then they survive further kills. They
say nothing of messages that were stored later: a topic of Kafka that was made again has other ones at these offsets.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Range = tuple[int, int]
"""First and last offset, both in it."""


def text_of(offsets: Iterable[int]) -> str:
    """Return some offsets as ranges in order, `3-7,9`: made once, since the ledger is written with each turn."""
    return ",".join(f"{first}-{last}" if first < last else f"{first}" for first, last in ranges_of(offsets))


def ranges_of(offsets: Iterable[int]) -> list[Range]:
    """Return the ranges of some offsets, in order."""
    found: list[Range] = []
    for offset in sorted(offsets):
        if found and offset <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], offset))
        else:
            found.append((offset, offset))
    return found


class OffsetSet:
    """Offsets of one queue that may only shrink once it is made.

    Args:
        ranges: Any, in any order.
        stored_ms: When the last of their messages was stored, Unix ms.

    Attributes:
        stored_ms: As given.
    """

    def __init__(self, ranges: Iterable[Range], stored_ms: int) -> None:
        self.stored_ms = stored_ms
        self._ranges: list[Range] = []
        for first, last in sorted(ranges):
            if self._ranges and first <= self._ranges[-1][1] + 1:
                self._ranges[-1] = (self._ranges[-1][0], max(self._ranges[-1][1], last))
            else:
                self._ranges.append((first, last))

    @property
    def ranges(self) -> list[Range]:
        """What is in it."""
        return list(self._ranges)

    def take(self, offset: int) -> bool:
        """Take an offset out; whether it was in."""
        place = bisect_right(self._ranges, (offset, 1 << 63)) - 1
        if place < 0 or not self._ranges[place][0] <= offset <= self._ranges[place][1]:
            return False
        first, last = self._ranges[place]
        self._ranges[place : place + 1] = [
            each for each in ((first, offset - 1), (offset + 1, last)) if each[0] <= each[1]
        ]
        return True


VERSION = 1
RECENT_MS = 10_000
RECENT_MAX = 1_000
TOGETHER_MS = 1_000
"""Messages that come again within so long are one entry."""
FORGET_SECONDS = 600.0


@dataclass(slots=True)
class PendingBytes:
    """Bytes that are on their way into a file.

    Attributes:
        end: Length of the file with them.
        crc: CRC-32 of the new bytes alone.
        offsets: Of the messages in them (`text_of`).
        stored_ms: When the last of these was stored, Unix ms.
    """

    end: int
    crc: int
    offsets: str
    stored_ms: int


@dataclass(slots=True)
class OpenFile:
    """One file that is not closed.

    Attributes:
        path: Its final name.
        qid: Queue of its messages.
        length: Bytes that are right, and whose messages are answered.
        pending: What is, or was, on its way beyond these; None: nothing.
        whole: It is written in one piece when it is closed; otherwise it grows aside.
        messages: How many are in it, since this process began.
        opened: Monotonic seconds when its first message came.
        used: Likewise, the last one.
    """

    path: str
    qid: str
    length: int = 0
    pending: PendingBytes | None = None
    whole: bool = False
    messages: int = 0
    opened: float = 0.0
    used: float = 0.0


@dataclass(slots=True)
class FileLedger:
    """All of it; `as_json` is what is kept."""

    files: dict[str, OpenFile] = field(default_factory=dict)
    recent: list[tuple[int, str, str, int]] = field(default_factory=list)
    done: dict[str, OffsetSet] = field(default_factory=dict)

    def committed(self, file: OpenFile, pending: PendingBytes, wall_ms: int) -> None:
        """Note that the pending bytes of a file are in it, and durable."""
        file.length = pending.end
        file.pending = None
        self.recent.append((wall_ms, file.qid, pending.offsets, pending.stored_ms))
        # Of a clock that went back the older entries stay until their number is too large.
        while self.recent and (self.recent[0][0] < wall_ms - RECENT_MS or len(self.recent) > RECENT_MAX):
            del self.recent[0]

    def found_in(self, file: OpenFile, pending: PendingBytes, wall_ms: int) -> None:
        """Note that the pending bytes of a file turned out to be in it: their messages may come again."""
        self._remember(file.qid, _ranges(pending.offsets), pending.stored_ms)
        self.committed(file, pending, wall_ms)

    def take_done(self, qid: str, offset: int, stored_ms: int, wall_ms: int) -> bool:
        """Whether a message that comes again is in a file already; then it is as if it were written now."""
        done = self.done.get(qid)
        if done is None or not done.take(offset):
            return False
        if stored_ms > done.stored_ms:
            # The topic was deleted and created again: this is another message with the same offset.
            del self.done[qid]
            return False
        # This answer may be lost as the one before was.
        last = self.recent[-1] if self.recent else None
        if last is not None and last[1] == qid and 0 <= wall_ms - last[0] < TOGETHER_MS:
            self.recent[-1] = (last[0], qid, f"{last[2]},{offset}", max(last[3], stored_ms))
        else:
            self.recent.append((wall_ms, qid, f"{offset}", stored_ms))
        return True

    def _remember(self, qid: str, offsets: Sequence[Range], stored_ms: int) -> None:
        before = self.done.get(qid)
        if before is not None:
            offsets, stored_ms = [*before.ranges, *offsets], max(before.stored_ms, stored_ms)
        self.done[qid] = OffsetSet(offsets, stored_ms)

    def as_json(self) -> dict[str, Any]:
        """Return what is kept: plain lists and numbers."""
        files = []
        for file in self.files.values():
            pending = file.pending
            further = None if pending is None else [pending.end, pending.crc, pending.offsets, pending.stored_ms]
            known = {"path": file.path, "qid": file.qid, "length": file.length, "whole": file.whole}
            files.append({**known, "pending": further})
        # What may still come again, and would have to be known after another kill.
        waiting = [(0, qid, done.ranges, done.stored_ms) for qid, done in self.done.items() if done.ranges]
        return {"version": VERSION, "files": files, "recent": [*waiting, *self.recent]}

    @classmethod
    def from_json(cls, value: Any) -> FileLedger:
        """Read what was kept; None is an empty one.

        Raises:
            ValueError: It is none of ours.
        """
        ledger = cls()
        if value is None:
            return ledger
        try:
            if value["version"] != VERSION:
                raise ValueError(f"version {value['version']} is not known; this is {VERSION}")
            for each in value["files"]:
                pending = None
                if each["pending"] is not None:
                    end, crc, offsets, *stored = each["pending"]
                    pending = PendingBytes(_number(end), _number(crc), _offsets(offsets), _stored_ms(stored))
                path, qid, length = _text(each["path"]), _text(each["qid"]), _number(each["length"])
                file = OpenFile(path, qid, length, pending, whole=each["whole"] is True)
                ledger.files[file.path] = file
            for wall_ms, qid, offsets, *stored in value["recent"]:
                if _number(wall_ms):
                    ledger.recent.append((wall_ms, _text(qid), _offsets(offsets), _stored_ms(stored)))
                ledger._remember(_text(qid), _ranges(offsets), _stored_ms(stored))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it does not have this form: {error!r}") from error
        return ledger


def _number(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a number of bytes, messages or ms")
    return value


def _stored_ms(value: list[object]) -> int:
    """Return when messages were stored; of a ledger that does not say it, whenever."""
    [found] = value or [1 << 63]
    if type(found) is not int:
        raise ValueError(f"{found!r} is not a time in ms")
    return found


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not text")
    return value


def _offsets(value: Any) -> str:
    """Return offsets as `text_of` has them."""
    return ",".join(f"{first}-{last}" for first, last in _ranges(value))


def _ranges(value: Any) -> list[Range]:
    if isinstance(value, str):
        pairs = (each.partition("-") for each in value.split(","))
        value = [(int(first), int(last or first)) for first, _, last in pairs]
    return [(_number(first), _number(last)) for first, last in value]
