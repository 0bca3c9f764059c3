"""Places that `watch` tells alarms to: a file and a webhook. What needs a node's port is not here (`lag.spark.jobs`).

A place is asked again and again for what it has not taken; what it took is noted in the state of alarms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol
from urllib.parse import urlsplit

from lag.alarms.lines import AlarmLines
from lag.alarms.webhook import Webhook

Event = Mapping[str, Any]
"""What is told, as `lag.alarms.model.event_of` makes it."""


class Place(Protocol):
    """Somewhere that alarms are told."""

    @property
    def trouble(self) -> str | None:
        """Why the last try failed; null: it did not."""
        ...

    def tell(self, events: Sequence[dict[str, Any]]) -> frozenset[str]:
        """Tell events, in their order, or see to it that they will be.

        Args:
            events: All that the place has not taken.

        Returns:
            Keys of those that it has taken since it was last asked.

        Raises:
            OSError: Nothing can be kept here, so nobody may go on.
        """
        ...

    def settle(self, seconds: float) -> None:
        """Wait so long for what is under way."""
        ...

    def close(self) -> None:
        """Give up what is under way, and what is held open."""
        ...


class FilePlace:
    """Lines in a file, each once.

    Args:
        lines: The file.
    """

    trouble: str | None = None
    """A file that cannot be written is an error."""

    def __init__(self, lines: AlarmLines) -> None:
        self.lines = lines

    def tell(self, events: Sequence[dict[str, Any]]) -> frozenset[str]:
        """Write those that are not there. Returns and raises as `Place` says."""
        return self.lines.append(events) if events else frozenset()

    def settle(self, seconds: float) -> None:
        """There is nothing under way."""

    def close(self) -> None:
        """Close the file."""
        self.lines.close()


class WebhookPlace:
    """Posts to an address, each until it is taken.

    Args:
        webhook: It.
    """

    def __init__(self, webhook: Webhook) -> None:
        self._webhook = webhook

    @property
    def trouble(self) -> str | None:
        """Why the last try failed; null: it did not."""
        return self._webhook.trouble

    def tell(self, events: Sequence[dict[str, Any]]) -> frozenset[str]:
        """Have them posted, and return the keys of what was."""
        taken = self._webhook.take()
        self._webhook.offer([each for each in events if each["key"] not in taken])
        return taken

    def settle(self, seconds: float) -> None:
        """Wait so long until all are posted."""
        self._webhook.settle(seconds)

    def close(self) -> None:
        """Post nothing more."""
        self._webhook.close()


def check_url(url: str) -> None:
    """Refuse what alarms cannot be posted to. Raises ValueError."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or parts.hostname is None or parts.port == 0 or parts.username is not None:
        raise ValueError(
            f"{url!r} is no address; write one such as https://alarms.example.com/lag, without a name in it"
        )
