"""Which partitions of a consumer are read and which rest.

librdkafka reads what is assigned at once, while a listener says first from where (`read_from`). So a partition rests
from its assignment on, and goes when it is read and the listener has not paused it. All calls are made in the member's
thread.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from upstream.kafka.link import Place
from upstream.kafka_client.package import confluent


class Gates:
    """The gates of one consumer, which is given afterwards."""

    def __init__(self) -> None:
        self.consumer: Any = None
        self._read: set[Place] = set()
        self._shut: set[Place] = set()
        self._package = confluent()

    def shut(self, places: Iterable[Place]) -> None:
        """Let these rest."""
        now = [each for each in places if each not in self._shut]
        self._shut.update(now)
        self._call("pause", [each for each in now if each in self._read])

    def unshut(self, places: Iterable[Place]) -> None:
        """Let these go on."""
        now = [each for each in places if each in self._shut]
        self._shut.difference_update(now)
        self._call("resume", [each for each in now if each in self._read])

    def given(self, places: Iterable[Place]) -> None:
        """Let what was just assigned rest until it is read; nobody has paused it yet."""
        now = list(places)
        self.gone(now)
        self._call("pause", now)

    def reads(self, place: Place) -> None:
        """Let this go, unless it is paused."""
        if place not in self._read:
            self._read.add(place)
            if place not in self._shut:
                self._call("resume", [place])

    def gone(self, places: Iterable[Place]) -> None:
        """Forget these."""
        now = set(places)
        self._read -= now
        self._shut -= now

    def _call(self, name: str, places: list[Place]) -> None:
        if places:
            make = self._package.TopicPartition
            # One that went at this moment is not paused any more in any case.
            with contextlib.suppress(self._package.KafkaException):
                getattr(self.consumer, name)([make(*each) for each in places])
