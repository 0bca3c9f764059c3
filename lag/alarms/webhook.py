"""Alarms as HTTP posts, each at least once, by a thread of its own: nobody waits for the other end.

An event is posted until a status from 200 to 299 comes back, with `Idempotency-Key: <its key>`, so that who receives it
twice can tell. Gaps between tries grow from a second to five minutes. Events go one after the other, in order.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

GAP_SECONDS: Final = (1.0, 300.0)
"""After the first failure, and at most."""
ANSWER_BYTES: Final = 4096
"""So much of an answer is read."""


class Webhook:
    """Posts to one address.

    Attributes:
        trouble: Why the last try failed; null: it did not.
        failures: Tries that failed so far.

    Args:
        url: Where, `http` or `https`. Redirects are not followed, and proxies of the environment not used.
        timeout_ms: How long each step of a try may take.
        gap_seconds: Gap after the first failure, and the longest.
    """

    def __init__(self, url: str, timeout_ms: int, gap_seconds: tuple[float, float] = GAP_SECONDS) -> None:
        self.trouble: str | None = None
        self.failures = 0
        self._url = urlsplit(url)
        self._timeout = timeout_ms / 1000
        self._gaps = gap_seconds
        self._events: dict[str, dict[str, Any]] = {}
        """What is to be posted, in order."""
        self._taken: set[str] = set()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def offer(self, events: Sequence[dict[str, Any]]) -> None:
        """Have events posted; those that were offered before are left as they are."""
        with self._changed:
            self._events.update({each["key"]: each for each in events if each["key"] not in self._taken})
            if self._events and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lag-alarms-webhook", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def take(self) -> frozenset[str]:
        """Return the keys of events that the other end took, of each once."""
        with self._changed:
            taken, self._taken = frozenset(self._taken), set()
            return taken

    def settle(self, seconds: float) -> None:
        """Wait so long until all that was offered is taken."""
        with self._changed:
            self._changed.wait_for(lambda: not self._events or self._closed, seconds)

    def close(self, seconds: float = 0.0) -> None:
        """Post nothing more; wait so long for what is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and seconds:
            self._thread.join(seconds)

    def _run(self) -> None:
        gap = self._gaps[0]
        while True:
            with self._changed:
                while not self._events and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                key, event = next(iter(self._events.items()))
            trouble = self._post(key, event)
            with self._changed:
                self.trouble = trouble
                if trouble is None:
                    self._events.pop(key, None)
                    self._taken.add(key)
                    self._changed.notify_all()
                    gap = self._gaps[0]
                    continue
                self.failures += 1
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, gap)
                gap = min(gap * 2, self._gaps[1])

    def _post(self, key: str, event: dict[str, Any]) -> str | None:
        """Try once; return why it failed."""
        url = self._url
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, "User-Agent": "pyddmq"}
        try:
            connection = kind(url.hostname or "", url.port, timeout=self._timeout)
            try:
                connection.request("POST", target, json.dumps(event).encode(), headers)
                response = connection.getresponse()
                response.read(ANSWER_BYTES)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            return f"{type(error).__name__}: {error}"
        return None if 200 <= response.status < 300 else f"it answered {response.status}"
