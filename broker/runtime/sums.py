"""The checksum of records, state files and journals: CRC-32, as zlib's."""

from __future__ import annotations

import zlib
from collections.abc import Callable

from broker.runtime.accelerators import accelerated

library_crc32: Callable[..., int]
try:
    # A 1.1 KB record costs 0.14 us here and 0.99 us with zlib; the sums are the same.
    from isal.isal_zlib import crc32 as library_crc32
except ImportError:
    library_crc32 = zlib.crc32
# The accelerator does the same, and has what follows not wait: of a record of 300 bytes 0.09 us instead of 0.23 in all.
crc32 = accelerated("broker.runtime.sum_accelerator", "crc32", library_crc32)
