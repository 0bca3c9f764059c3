"""Alarms as messages of a topic, through a node's producer port, each exactly once.

Each event is the one message of a deduplicating producer (`lag.alarms.model.unique_key`), so what a node has of it is
not stored again: not after a kill here, and not where the node tells the same alarm itself.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from broker.format.java import string_hash
from lag.alarms.model import unique_key
from lag.spark.sources import wire
from lag.spark.sources.node import NodeClient, NodeFailed

_STORED: Final = 0


class TopicPlace:
    """Sends events to one topic, in their order.

    Attributes:
        trouble: Why the last try failed; null: it did not.

    Args:
        node: `host:port` of the producer port.
        topic: The topic.

    Raises:
        OptionRefused: The address is malformed.
    """

    def __init__(self, node: str, topic: str) -> None:
        self.trouble: str | None = None
        self._client = NodeClient(node)
        self._topic = topic

    def tell(self, events: Sequence[dict[str, Any]]) -> frozenset[str]:
        """Send them up to the first that the node does not take; returns the keys of those that it has."""
        taken = set()
        for event in events:
            self.trouble = self._send(event)
            if self.trouble is not None:
                break
            taken.add(str(event["key"]))
        return frozenset(taken)

    def settle(self, seconds: float) -> None:
        """There is nothing under way."""

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def _send(self, event: dict[str, Any]) -> str | None:
        """Send one event; returns why that failed."""
        message = [
            wire.text(1, self._topic),
            wire.text(2, str(event["id"])),
            # A group's alarms are in one queue, in their order, as those of the node are.
            wire.i64(4, string_hash(str(event["group"]))),
            wire.text(5, str(event["event"])),
            wire.text(7, json.dumps(event, ensure_ascii=False).encode("utf-8", "backslashreplace")),
            wire.text(104, unique_key(str(event["key"])).decode()),
        ]
        try:
            result = self._client.call("sendBatchSync", [wire.structures(1, [message]), wire.boolean(101, False)])
        except NodeFailed as failed:
            return str(failed)
        found = result.get(0)
        if not isinstance(found, dict):
            return f"{self._client.address} answered a send with nothing"
        if found.get(1) == _STORED:
            return None
        said = found.get(2, b"")
        text = said.decode("utf-8", "replace") if isinstance(said, bytes) else ""
        return f"{self._client.address} refuses it (code {found.get(1)}): {text}"
