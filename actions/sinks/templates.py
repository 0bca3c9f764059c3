"""Texts with places for parts of the message: `order:${$.id}`; compiled once, filled in for each message.

`${key}`, `${tag}`, `${topic}`, `${group}`, `${qid}`, `${offset}`, `${storedMs}`, `${bornMs}`, `${body}`,
`${property:NAME}`, and `${$.path}` for a value of the JSON body. `$$` is a dollar sign.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from actions.tombstones import is_tombstone
from actions.transform.exact_json import body_of, decode_exact, json_of
from conf.json_path import MISSING, compile_getter, parse_path
from pyddmq.actions import Job, Unprocessable

_PLACE = re.compile(r"\$\$|\$\{([^}]*)\}|\$")

Part = Callable[[Job], Any]


class FieldMissing(Unprocessable):
    """A message lacks what a template names, and never will have it."""


_NAMED: dict[str, Part] = {
    "key": lambda job: job.message.key,
    "tag": lambda job: job.message.tag,
    "topic": lambda job: job.topic,
    "group": lambda job: job.group,
    "qid": lambda job: job.qid,
    "offset": lambda job: job.offset,
    "storedMs": lambda job: job.message.stored_ms,
    "bornMs": lambda job: job.message.born_ms,
}


def parsed(job: Job) -> Any:
    """Return the body as JSON, parsed now where no action did.

    Raises:
        Unprocessable: It is none.
    """
    data = job.data
    if is_tombstone(job):
        return None
    if not isinstance(data, bytes | bytearray | memoryview):
        return data
    try:
        return decode_exact(bytes(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unprocessable(f"body is not JSON: {error}") from error


class Template:
    """One text.

    Args:
        text: With its places.
        is_intact: `${body}` is as it was published: see `actions.transform.exact_json`.

    Attributes:
        needs_json: It looks into the body.

    Raises:
        ValueError: A place is not closed or names nothing that there is.
    """

    def __init__(self, text: str, *, is_intact: bool = False) -> None:
        self.text = text
        self._is_intact = is_intact
        self.needs_json = False
        self._parts: list[str | Part] = []
        at = 0
        for found in _PLACE.finditer(text):
            if found.start() > at:
                self._parts.append(text[at : found.start()])
            at = found.end()
            if found.group() == "$$":
                self._parts.append("$")
            elif found.group() == "$":
                raise ValueError(f"{text!r} has a `$` without {{...}}; write $$ for a dollar sign")
            else:
                self._parts.append(self._part(found.group(1)))
        if at < len(text):
            self._parts.append(text[at:])

    def _part(self, name: str) -> Part:
        if name in _NAMED:
            return _checked(name, _NAMED[name])
        if name == "body":
            return _checked(name, self._body)
        if name.startswith("property:"):
            wanted = name.removeprefix("property:")
            return _checked(name, lambda job: job.message.properties.get(wanted))
        if not name.startswith("$"):
            raise ValueError(
                f"${{{name}}} is unknown; use {', '.join(_NAMED)}, body, property:NAME, or JSON paths such as $.id"
            )
        parse_path(name)
        self.needs_json = True
        get = compile_getter(name)

        def value(job: Job) -> Any:
            found = get(parsed(job))
            return None if found is MISSING else found

        return _checked(name, value)

    def _body(self, job: Job) -> bytes | None:
        return None if is_tombstone(job) else body_of(job.data, job.body, is_intact=self._is_intact)

    def fill(self, job: Job) -> bytes:
        """Return the text for one message, in UTF-8; a body alone stays the bytes that it is.

        Raises:
            FieldMissing: A part is not there, or null.
            Unprocessable: The body is not JSON, and a part of it is wanted.
        """
        pieces = [part.encode() if isinstance(part, str) else as_bytes(part(job)) for part in self._parts]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _checked(name: str, part: Part) -> Part:
    def value(job: Job) -> Any:
        found = part(job)
        if found is None:
            raise FieldMissing(f"${{{name}}} is missing")
        return found

    return value


def as_bytes(value: Any) -> bytes:
    """Return a value as sinks store it: text in UTF-8, bytes as they are, everything else as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return json_of(value)
