"""Alarms as messages of a topic of the node, each exactly once.

Each event is the only message of a deduplicating producer whose name is made of the event's key (D39): the store knows
whether it has it, over restarts and kills.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from broker.errors import StoreError
from broker.format.java import queue_of_key
from broker.log.put import Put
from broker.runtime.seams import Clock
from lag.alarms.model import unique_key
from proxy.recording.node import Observed

_HOST: Final = bytes((127, 0, 0, 1, 0, 0, 0, 0))
Told = Callable[[str, str | None], None]
"""Is told the key of an event, and why it is not stored; None: it is, durably."""


class AlarmTopic:
    """Appends events to one node's store.

    Args:
        node: The node, open.
        clock: Dates messages.
        told: Hears how each ended.
    """

    def __init__(self, node: Observed, clock: Clock, told: Told) -> None:
        self._node = node
        self._clock = clock
        self._told = told
        self._under_way: set[str] = set()

    def send(self, topic: str, event: dict[str, Any]) -> None:
        """Store an event, unless it is stored or on its way."""
        key = str(event["key"])
        if key in self._under_way:
            return
        self._under_way.add(key)
        try:
            self._send(topic, event, key)
        except StoreError as error:
            self._done(key, error)

    def _send(self, topic: str, event: dict[str, Any], key: str) -> None:
        store, known = self._node.store, self._node.deduplication
        found = store.topics.get(topic)
        if found is None:
            self._under_way.discard(key)
            self._told(key, f"there is no topic {topic!r}")
            return
        unique = unique_key(key)
        judged = known.judge([unique])
        if judged.places:
            store.commit.when_told(partial(self._done, key))
            return
        group = str(event["group"])
        properties = b"KEYS\x01%b\x02TAGS\x01%b\x02UNIQ_KEY\x01%b\x02" % (
            str(event["id"]).encode(), str(event["event"]).encode(), unique,
        )  # fmt: skip
        put = Put(
            topic=found,
            queue_id=queue_of_key(group, len(found.queues)),
            body=json.dumps(event, ensure_ascii=False).encode("utf-8", "backslashreplace"),
            properties=properties,
            tags=str(event["event"]).encode(),
            unique_key=unique,
        )
        born_ms = self._clock.wall_ms()
        [position] = store.append([put], born_ms=born_ms, born_host=_HOST, done=partial(self._done, key))
        known.stored(judged, [position.physical])

    def _done(self, key: str, error: StoreError | None) -> None:
        self._under_way.discard(key)
        self._told(key, None if error is None else str(error))
