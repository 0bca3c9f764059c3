"""One occurrence of a delayed message of DDMQ's: its id says all there is to know of it. No I/O, no clock.

DDMQ's uniqDelayMsgId is `timestamp-type-expire-times-made-interval-sequence-uuid` (reference section 5.1): ten digits,
one digit, ten digits, four numbers, and a lower-case uuid. Time is in whole seconds since the Unix epoch. `made` is how
many deliveries came before this one, so that each occurrence of a loop has an id of its own and the next one can be
computed from it alone. A loop (`LOOP`) comes every `interval` seconds; one with growing gaps (`GROWING`) after
interval^1, interval^2, ... seconds, none longer than a day. It comes at most `times` times and not after `expire`; both
count occurrences by the time they were meant for, however late they are delivered.
"""

from __future__ import annotations

import re
from typing import NamedTuple

LOOP_NAME = b"__PYDDMQ_LOOP"
"""Holds the id of the pending occurrence; what is delivered here does not have it."""


ONCE, LOOP, GROWING = 2, 3, 4
"""DDMQ's types (its dmsgtype)."""
SECONDS_MIN = 1_000_000_000
SECONDS_MAX = 9_999_999_999
"""An id has ten digits for each of its two times."""
NUMBER_MAX = (1 << 31) - 1
GAP_MAX = 86_400
"""Longest gap of a loop with growing gaps, seconds (`InternalKey`)."""
ONCE_EXPIRES_AFTER = 2 * 86_400
"""What a single delayed message has for its expiry, seconds from its time; nothing looks at it (R104)."""

UUID = re.compile(r"[0-9a-z]{8}-[0-9a-z]{4}-[0-9a-z]{4}-[0-9a-z]{4}-[0-9a-z]{12}", re.ASCII)
_ID = re.compile(
    rf"(\d{{10}})-(\d)-(\d{{10}})-(\d{{1,10}})-(\d{{1,10}})-(\d{{1,10}})-(\d{{1,10}})-({UUID.pattern})", re.ASCII
)


class Occurrence(NamedTuple):
    """One occurrence.

    Attributes:
        at_s: When it is due.
        kind: ONCE, LOOP or GROWING.
        expire_s: No occurrence after this.
        times: How many deliveries a loop has; 0 of ONCE.
        made: How many were made before this one.
        interval: Seconds between two (LOOP), the base of the growth (GROWING).
        sequence: Number of DDMQ's inner topic; 0 here.
        uuid: The same for all occurrences of a loop.
    """

    at_s: int
    kind: int
    expire_s: int
    times: int
    made: int
    interval: int
    sequence: int
    uuid: str

    @property
    def id(self) -> str:
        """DDMQ's uniqDelayMsgId."""
        numbers = (self.at_s, self.kind, self.expire_s, self.times, self.made, self.interval, self.sequence)
        return "-".join([*map(str, numbers), self.uuid])

    @property
    def is_loop(self) -> bool:
        """Whether another one may follow."""
        return self.kind != ONCE

    @property
    def valid(self) -> bool:
        """Whether a loop has this occurrence (DDMQ's `KeyUtils`)."""
        return self.expire_s >= self.at_s and self.times > self.made

    @property
    def left(self) -> int:
        """Deliveries that `times` leaves, this one included; `expire_s` may leave fewer."""
        return max(1, self.times - self.made)

    @property
    def gap(self) -> int:
        """Seconds to the next one."""
        if self.kind == LOOP:
            return self.interval
        # 2 to the 17th is more than a day, and a larger power of a larger base is a number of any size.
        return GAP_MAX if self.made >= 17 else min(self.interval ** (self.made + 1), GAP_MAX)

    def next(self) -> Occurrence | None:
        """Return the occurrence after this one; None when this is the last."""
        if not self.is_loop:
            return None
        found = self._replace(at_s=self.at_s + self.gap, made=self.made + 1)
        return found if found.valid else None

    def missed(self, now_s: int) -> int:
        """Return how many occurrences, beginning with this one, are due by a moment."""
        if self.at_s > now_s:
            return 0
        if not self.is_loop:
            return 1
        count, each = 0, self
        while each.kind == GROWING and each.gap < GAP_MAX:
            count += 1
            following = each.next()
            if following is None or following.at_s > now_s:
                return count
            each = following
        # The gaps are all the same from here on.
        until = min(now_s, each.expire_s)
        return count + min((until - each.at_s) // each.gap + 1, each.times - each.made)

    def later(self, steps: int) -> Occurrence | None:
        """Return the occurrence so many after this one; None when the loop ends before."""
        each: Occurrence | None = self
        while steps and each is not None and each.kind == GROWING and each.gap < GAP_MAX:
            each = each.next()
            steps -= 1
        if each is None or not steps:
            return each
        if not each.is_loop:
            return None
        found = each._replace(at_s=each.at_s + steps * each.gap, made=each.made + steps)
        return found if found.valid else None

    @property
    def first(self) -> Occurrence:
        """The loop's first occurrence, whose id the add was answered with; of ONCE itself."""
        if self.kind == GROWING:
            growing = min(self.made, 17)
            gaps = sum(min(self.interval**power, GAP_MAX) for power in range(1, growing + 1))
            passed = gaps + (self.made - growing) * GAP_MAX
        else:
            passed = self.made * self.interval
        return self._replace(at_s=self.at_s - passed, made=0)


def parse_id(text: str) -> Occurrence | None:
    """Return what an id says; None when it has another form (R103), or a number of more than 31 bits (W88)."""
    found = _ID.fullmatch(text)
    if found is None:
        return None
    *texts, uuid = found.groups()
    at_s, kind, expire_s, *numbers = map(int, texts)
    if max(numbers) > NUMBER_MAX:
        return None
    times, made, interval, sequence = numbers
    return Occurrence(at_s, kind, expire_s, times, made, interval, sequence, uuid)


def user_key(keys: str) -> str:
    """Return the keys of a message without the ids that stand beside them for DDMQ's cancels."""
    return " ".join(word for word in keys.split(" ") if parse_id(word) is None)
