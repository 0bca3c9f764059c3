"""Just enough of Redis' protocol for the benchmark's clients: commands encoded beforehand, replies passed over fast."""

from __future__ import annotations

import re
from collections.abc import Sequence

_ENTRY_ID = re.compile(rb"\r\n\$\d+\r\n(\d{13}-\d+)\r\n")


def command(*words: bytes) -> bytes:
    """Encode one command."""
    parts = [b"*%d\r\n" % len(words)]
    parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
    return b"".join(parts)


def reply_end(data: bytes | bytearray, pos: int) -> int | None:
    """Return where the reply that begins at `pos` ends, None when it is not all there yet."""
    left = 1
    while left:
        end = data.find(b"\r\n", pos)
        if end < 0:
            return None
        kind = data[pos]
        if kind in b"*$":
            size = int(data[pos + 1 : end])
            pos = end + 2
            if kind == 36 and size >= 0:
                pos += size + 2
                if pos > len(data):
                    return None
            elif kind == 42 and size > 0:
                left += size
        else:
            pos = end + 2
        left -= 1
    return pos


def entry_ids(reply: bytes | bytearray) -> Sequence[bytes]:
    """Return the ids in a reply of XREADGROUP. Bodies of the benchmark cannot look like one."""
    return _ENTRY_ID.findall(reply)
