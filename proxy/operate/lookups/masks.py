"""What operators do not see of a topic's messages: properties and JSON fields that its `mask` names.

Consumers get messages whole; so does a reader of the files of a stopped store.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from conf.json_path import parse_path
from conf.models import Config
from upstream.kafka.broker import DEAD_LETTER_SUFFIX

if TYPE_CHECKING:
    from jsonpath import JSONPath

MASKED = "***"
"""What is shown in place of a value."""


class TopicMask(NamedTuple):
    """The mask of one topic.

    Attributes:
        names: Names of properties; KEYS and TAGS are the key and the tags.
        paths: JSON paths of the body.
    """

    names: frozenset[str] = frozenset()
    paths: tuple[str, ...] = ()

    def properties(self, found: Mapping[str, str]) -> dict[str, str]:
        """Return properties with masked values."""
        return {name: MASKED if name in self.names else value for name, value in found.items()}

    def body(self, body: bytes) -> bytes:
        """Return a body with masked values: JSON written again, or `MASKED` where it is not JSON.

        So it is where a name is repeated: paths would be looked for in the last of these values only.
        """
        if not self.paths:
            return body
        try:
            content = json.loads(body, object_pairs_hook=members)
            places = [match.parts for path in self.paths for match in _query(path).finditer(content)]
        except (ValueError, RecursionError):
            return MASKED.encode()
        if not places:
            return body
        for place in places:
            content = _replaced(content, place)
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")

    def __bool__(self) -> bool:
        return bool(self.names or self.paths)


class MessageMasks:
    """The masks of a node's topics.

    Args:
        topics: The entries of `mask`, by topic.
        letters: Those of these topics that hold dead letters.
    """

    def __init__(self, topics: Mapping[str, Sequence[str]], letters: Container[str] = ()) -> None:
        self._masks = {name: _mask_of(tuple(entries)) for name, entries in topics.items() if name not in letters}
        every = [entry for entries in topics.values() for entry in entries]
        self._of_internal = _mask_of(tuple(dict.fromkeys(every)))

    def of(self, topic: str) -> TopicMask:
        """Return the mask of a topic's messages.

        One that is not configured, or has dead letters, may hold messages of any other: retries, dead letters and what
        waits. All masks hold for it.
        """
        return self._masks.get(topic, self._of_internal)


class MasksInForce:
    """Makes the masks of a configuration once, as each search asks for them, and a download for each message."""

    def __init__(self) -> None:
        self._made: tuple[Config, MessageMasks] | None = None

    def of(self, config: Config) -> MessageMasks:
        """Return its masks."""
        if self._made is None or self._made[0] is not config:
            letters = {name for name in config.topics if name.endswith(DEAD_LETTER_SUFFIX)}
            masks = MessageMasks({name: topic.mask for name, topic in config.topics.items()}, letters)
            self._made = config, masks
        return self._made[1]


@cache
def _mask_of(entries: tuple[str, ...]) -> TopicMask:
    return TopicMask(
        frozenset(each for each in entries if not each.startswith("$")),
        tuple(each for each in entries if each.startswith("$")),
    )


@cache
def _query(path: str) -> JSONPath:
    return parse_path(path)


def members(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return an object of JSON. Raises ValueError: it has a name twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is repeated")
    return found


def _replaced(content: object, place: Sequence[str | int]) -> object:
    """Return parsed JSON with the value at a place masked; what a mask above it has hidden stays hidden."""
    if not place:
        return MASKED
    held = content
    for part in place[:-1]:
        if not isinstance(held, dict | list):
            return content
        held = held[part]  # type: ignore[index]
    if isinstance(held, dict | list):
        held[place[-1]] = MASKED  # type: ignore[index]
    return content
