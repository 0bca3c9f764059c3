"""Where a message goes: the folder by group, topic and store time, the name by its queue and the first offset (D46).

So a message that comes again goes to the file that it was in, whatever the time is now (W61). A name also has the store
time of its first message: offsets begin again at 0 when a data directory is made again, and must not replace what an
earlier one wrote.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, tzinfo
from urllib.parse import quote

from pyddmq.actions import Unprocessable

_PLACE = re.compile(r"\$?\{(\w+)\}")
_FORMS = {"yyyy": "%Y", "MM": "%m", "dd": "%d", "HH": "%H", "hh": "%H", "mm": "%M"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
OPEN_SUFFIX = ".open"


def check_path(text: str) -> str:
    """Return a template of folders as it is.

    Raises:
        ValueError: It names something that there is not, or leads out of its root.
    """
    for found in _PLACE.finditer(text):
        if found.group(1) not in ("group", "topic", *_FORMS):
            known = ", ".join(f"${{{name}}}" for name in ("group", "topic", *_FORMS))
            raise ValueError(f"{found.group()} is unknown; use {known}")
    rest = _PLACE.sub("", text)
    if "$" in rest or "{" in rest or "}" in rest:
        raise ValueError(f"{text!r} has an incomplete ${{...}}")
    if ".." in text.split("/") or "\0" in text:
        raise ValueError(f"{text!r} leads out of its root folder")
    return text


def zone_of(name: str) -> tzinfo:
    """Return a time zone.

    Raises:
        ValueError: There is none of that name on this machine.
    """
    if name == "UTC":
        return UTC
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValueError(
            f"{name!r} is not a time zone of this machine; write UTC, or a name such as Asia/Shanghai"
        ) from error


class Layout:
    """Folders and names of one subscription.

    Args:
        root: What all paths begin with, without a slash at its end.
        path: The template of folders below.
        group: Its group.
        topic: Its topic.
        zone: Time zone of the times in paths.
        suffix: How names end, with the dot.
    """

    def __init__(self, *, root: str, path: str, group: str, topic: str, zone: tzinfo, suffix: str) -> None:
        plain = {"group": plain_name(group), "topic": plain_name(topic)}
        self._root = root
        self._zone = zone
        self._suffix = suffix
        self._prefix = f"{plain['group']}.{plain['topic']}"
        self._form = _PLACE.sub(lambda found: plain.get(found[1]) or "${" + found[1] + "}", path).strip("/")
        # -1 matches no minute. A path without a time has one folder for all messages.
        self._minute = -1
        self._has_time = any(found[1] in _FORMS for found in _PLACE.finditer(self._form))
        self._folder = f"{root}/{self._form}" if self._form else root

    def folder(self, stored_ms: int) -> str:
        """Return the folder of a message by its store time.

        Raises:
            Unprocessable: No calendar has that time; in Kafka producers set it as they like.
        """
        minute = stored_ms // 60_000
        if self._has_time and minute != self._minute:
            try:
                at = (_EPOCH + timedelta(milliseconds=stored_ms)).astimezone(self._zone)
            except (OverflowError, ValueError) as error:
                raise Unprocessable(f"store time {stored_ms} ms is not within the years 1 to 9999") from error
            below = _PLACE.sub(lambda found: at.strftime(_FORMS[found[1]]), self._form)
            self._minute, self._folder = minute, f"{self._root}/{below}"
        return self._folder

    def name(self, qid: str, offset: int, stored_ms: int) -> str:
        """Return the name of the file that begins with a message."""
        return f"{self._prefix}.{plain_name(qid)}.{offset:020d}.{stored_ms}{self._suffix}"


def plain_name(text: str) -> str:
    """Return text as a part of a file's name: letters, digits, `_`, `-`, and `=` with two hex digits for any other."""
    return quote(text, safe="").replace(".", "=2E").replace("~", "=7E").replace("%", "=")


def aside(path: str) -> str:
    """Return the path of a file until it is whole; names that begin with a dot are passed over by readers."""
    folder, _, name = path.rpartition("/")
    return f"{folder}/.{name}{OPEN_SUFFIX}"
