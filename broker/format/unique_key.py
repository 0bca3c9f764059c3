"""UNIQ_KEY, the identity of a message, in RocketMQ's form (D7): 32 upper-case hex digits.

Address (4 bytes), process (2), a number that Java takes from its class loader (4), milliseconds since the start of the
month (4) and a counter (2). The process and loader parts are drawn again whenever a store is opened, so that two
openings never share a prefix in practice.
"""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random

from broker.runtime.accelerators import accelerated

KEY_BYTES = 32


def _numbered(stem: bytes, number: int, count: int) -> list[bytes]:
    """Return keys of `count` consecutive numbers; `broker.format.unique_key_accelerator` does the same."""
    return [b"%b%04X" % (stem, each & 0xFFFF) for each in range(number, number + count)]


numbered_keys = accelerated("broker.format.unique_key_accelerator", "numbered", _numbered)
"""Makes keys of a stem of 28 digits and consecutive numbers, of 16 bits."""


class UniqueKeys:
    """Makes the keys of one opening of a store.

    Args:
        address: IPv4 address, 4 bytes.
        random: Source of the process and loader parts.
    """

    def __init__(self, address: bytes, random: Random) -> None:
        self._prefix = (address[:4] + random.randbytes(6)).hex().upper().encode("ascii")
        self._counter = random.getrandbits(16)
        self._month = range(0)
        self._now_ms = -1
        self._stem = b""

    def take(self, count: int, now_ms: int) -> list[bytes]:
        """Return the next `count` keys; `now_ms` is the wall clock in ms since the epoch (UTC decides the month)."""
        if now_ms != self._now_ms:
            self._now_ms = now_ms
            self._stem = b"%b%08X" % (self._prefix, self._since_month(now_ms) & 0xFFFFFFFF)
        number = (self._counter + 1) & 0xFFFF
        self._counter = (self._counter + count) & 0xFFFF
        return numbered_keys(self._stem, number, count)

    def _since_month(self, now_ms: int) -> int:
        if now_ms not in self._month:
            try:
                day = datetime.fromtimestamp(now_ms / 1000, UTC)
                start = day.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
                following = start.replace(year=start.year + start.month // 12, month=start.month % 12 + 1)
            except (ValueError, OverflowError):
                # A time beyond the calendar, as a damaged record may have left it: without months.
                return now_ms
            self._month = range(int(start.timestamp()) * 1000, int(following.timestamp()) * 1000)
        return now_ms - self._month.start
