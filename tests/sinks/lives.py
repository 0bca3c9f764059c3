"""A real node process that writes into a sink over several lives, and the account of what it accepted.

A thread publishes while the node lives. What was accepted must be in the sink in the end, once where that is promised,
in the order of its key; beside it only what was sent and got no answer may be there.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyddmq
from tests.crash.process import NodeProcess
from tests.patient import PATIENCE_SECONDS, Producer, until

KEYS = 10
GROUP, TOPIC = "sunk", "orders"
CLOSE_BY = 40
"""How far a life goes before something happens to it."""


class Lives:
    """The node, and what was sent to it.

    Args:
        folder: For the node.
        sink: Name of the action.
        options: Its options.
        written: How many messages are in the sink now.
        life_max: Messages that are sent in a life at most.
        prefix: Stands before the node's command.
        more: Fields of the subscription.
    """

    def __init__(
        self,
        folder: Path,
        sink: str,
        options: dict[str, Any],
        written: Callable[[], int],
        *,
        life_max: int = 2_000,
        prefix: Sequence[str] = (),
        more: dict[str, Any] | None = None,
    ) -> None:
        subscription = {
            "topic": TOPIC,
            "orderKey": "KEY",
            "actions": ["Async", sink],
            "options": {sink: options},
            **(more or {}),
        }
        self.node = NodeProcess(
            folder,
            {
                "node": {"drainSeconds": 30},
                "topics": {TOPIC: {"queues": 2}},
                "groups": [{"group": GROUP, "topics": [subscription]}],
            },
        )
        self._life_max = life_max
        self._prefix = prefix
        self.written = written
        self.accepted: set[int] = set()
        self.doubtful: set[int] = set()
        self._next = self._away_seen = 0
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()

    def begin(self) -> None:
        """Start the node, and publish."""
        assert self.node.start(prefix=self._prefix)
        self._stopping.clear()
        self._away_seen = 0
        self._thread = threading.Thread(target=self._publish, args=(self.node.producer,))
        self._thread.start()

    def in_the_middle(self) -> None:
        """Wait until more has come to the sink, while more is sent than came."""
        wanted = self.written() + CLOSE_BY
        until(lambda: self.written() >= wanted, f"{wanted} messages in the sink")

    def kill(self) -> None:
        """SIGKILL of the node."""
        self.node.kill()
        self._end_publishing()

    def is_away(self) -> None:
        """Wait until the sink found its server away, or full, since this was last called in this life."""

        def found() -> int:
            return self.events("server_away") + self.events("message_waits")

        until(lambda: found() > self._away_seen, "the server to be found away")
        self._away_seen = found()

    def events(self, event: str) -> int:
        """How often an event of actions was counted in this life."""
        with urlopen(f"http://{self.node.admin}/metrics", timeout=PATIENCE_SECONDS) as answer:
            lines = answer.read().decode().splitlines()
        return sum(
            int(float(line.rpartition(" ")[2]))
            for line in lines
            if line.startswith("pyddmq_action_events_total{") and f'event="{event}"' in line
        )

    def _stored(self) -> int:
        """How many messages the topic has."""
        with urlopen(f"http://{self.node.admin}/api/topics?topic={TOPIC}", timeout=PATIENCE_SECONDS) as answer:
            [topic] = json.load(answer)["topics"]
        return sum(int(each["max"]) for each in topic["queues"])

    def finish(self) -> None:
        """Send no more, and wait until everything has come and the node has ended."""
        self._end_publishing()
        # What was stored without an answer comes too: as many as were accepted may be there without each of these.
        stored = self._stored()
        assert stored >= len(self.accepted)
        until(lambda: self.written() >= stored, f"{stored} messages in the sink")
        assert self.node.stop() == 0

    def close(self) -> None:
        """Leave nothing behind."""
        self.node.close()
        self._end_publishing()

    def check(self, found: Iterable[int], *, by_key: bool = True) -> None:
        """Hold what the sink has, in its order, against what was accepted: once each, each key in its order."""
        numbers = list(found)
        assert sorted(numbers) == sorted(set(numbers)), "a second effect"
        assert not self.accepted - set(numbers), "lost"
        assert not set(numbers) - self.accepted - self.doubtful, "never sent"
        for key in range(KEYS) if by_key else ():
            mine = [number for number in numbers if number % KEYS == key]
            assert mine == sorted(mine), f"key {key} is out of order"

    def _end_publishing(self) -> None:
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(PATIENCE_SECONDS)
            assert not self._thread.is_alive()

    def _publish(self, address: tuple[str, int]) -> None:
        first = len(self.accepted)
        try:
            with Producer(f"{address[0]}:{address[1]}", resends=0) as producer:
                while not self._stopping.is_set() and len(self.accepted) - first < self._life_max:
                    number = self._next
                    self._next += 1
                    self.doubtful.add(number)
                    producer.send(TOPIC, b'{"n": %d}' % number, key=f"k{number % KEYS}")
                    self.accepted.add(number)
        except pyddmq.ClientError:
            # The node is gone; whether it had the last one nobody knows.
            return
