"""Names of index files: yyyyMMddHHmmssSSS of their creation, in the machine's time zone, as RocketMQ makes them.

Files are put in order by name, here and in RocketMQ, so a new one never has a name before the last.
"""

from __future__ import annotations

from datetime import datetime, timedelta

_DIGITS = 17
_FORMAT = "%Y%m%d%H%M%S%f"


def is_file_name(name: str) -> bool:
    """Whether a file of that name can be an index file."""
    if len(name) != _DIGITS or not name.isdigit() or not name.isascii():
        return False
    try:
        datetime.strptime(name, _FORMAT)
    except ValueError:
        return False
    return True


def file_name(wall_ms: int, *, after: str) -> str:
    """Return the name of a file that is made now.

    Args:
        wall_ms: The moment, ms since the epoch.
        after: Name of the last file, "" for none. Where the clock stands still or went back, the millisecond after it.
    """
    name = _name(datetime.fromtimestamp(wall_ms / 1000))
    return name if name > after else _name(datetime.strptime(after, _FORMAT) + timedelta(milliseconds=1))


def _name(moment: datetime) -> str:
    return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}"
