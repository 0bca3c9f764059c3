"""The checksum of records, state files and journals: CRC-32, as zlib's."""

from __future__ import annotations

import zlib
from collections.abc import Callable

crc32: Callable[..., int]
try:
    # A 1.1 KB record costs 0.14 us here and 0.99 us with zlib; the sums are the same.
    from isal.isal_zlib import crc32
except ImportError:
    crc32 = zlib.crc32
