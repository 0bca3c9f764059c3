"""Changes as HTTP posts, by a thread of its own: nothing waits for the other end.

A change is posted until a status from 200 to 299 comes back, with `Idempotency-Key: <its key>`, so that a receiver
can recognize a repeat. Gaps between tries grow from a second to five minutes. Changes are posted in order, one at a
time. One that the receiver refuses is dropped, so that it does not block the next: a status from 300 to 499, but 408,
425 and 429, or `ANSWERS_MAX` answers of another kind. A receiver that does not answer concerns all changes, and is
tried forever.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections import deque
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

GAP_SECONDS: Final = (1.0, 300.0)
"""After the first failure, and at most."""
WAITING_MAX: Final = 1_000
"""Changes that wait; of more the oldest are dropped."""
ANSWERS_MAX: Final = 10
"""Answers such as 500 or 429 after which a change counts as refused."""
ANSWER_BYTES: Final = 4096
"""So much of an answer is read."""
_LATER: Final = frozenset((408, 425, 429))
"""Refusals that another try may not meet."""


class Webhook:
    """Posts to one address.

    Attributes:
        trouble: Why the last change was not posted; None if it was.
        counts: Posts by outcome so far: `sent`, `failed` (tried again), `refused` and `dropped` (both lost).

    Args:
        url: Where, `http` or `https`. Redirects are not followed, and proxies of the environment not used.
        timeout_ms: How long each step of a try may take.
        gap_seconds: Gap after the first failure, and the longest.
    """

    def __init__(self, url: str, timeout_ms: int, gap_seconds: tuple[float, float] = GAP_SECONDS) -> None:
        self.trouble: str | None = None
        self.counts = dict.fromkeys(("sent", "failed", "refused", "dropped"), 0)
        self._url = urlsplit(url)
        self._timeout = timeout_ms / 1000
        self._gaps = gap_seconds
        self._waiting: deque[dict[str, Any]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def offer(self, changes: Sequence[dict[str, Any]]) -> None:
        """Have changes posted, in order."""
        with self._changed:
            self._waiting.extend(changes)
            while len(self._waiting) > WAITING_MAX:
                self._waiting.popleft()
                self.counts["dropped"] += 1
            if self._waiting and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="lag-webhook", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, seconds: float = 0.0) -> None:
        """Post nothing more; wait so long for what is under way."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        if self._thread is not None and seconds:
            self._thread.join(seconds)

    def _run(self) -> None:
        gap, answers = self._gaps[0], 0
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                change = self._waiting[0]
            outcome, trouble = self._post(change)
            if outcome == "answered":
                answers += 1
                outcome = "refused" if answers == ANSWERS_MAX else "failed"
            with self._changed:
                self.counts[outcome] += 1
                self.trouble = trouble
                if outcome != "failed":
                    # It may have been dropped meanwhile, as the oldest of too many.
                    if self._waiting and self._waiting[0] is change:
                        self._waiting.popleft()
                    gap, answers = self._gaps[0], 0
                    continue
                if not self._closed:
                    self._changed.wait_for(lambda: self._closed, gap)
                gap = min(gap * 2, self._gaps[1])

    def _post(self, change: dict[str, Any]) -> tuple[str, str | None]:
        """Try once; return the outcome, and why the change was not taken; `answered` may be taken by another try."""
        url = self._url
        kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
        target = (url.path or "/") + (f"?{url.query}" if url.query else "")
        headers = {"Content-Type": "application/json", "Idempotency-Key": change["key"], "User-Agent": "pyddmq"}
        try:
            connection = kind(url.hostname or "", url.port, timeout=self._timeout)
            try:
                connection.request("POST", target, json.dumps(change).encode(), headers)
                response = connection.getresponse()
                response.read(ANSWER_BYTES)
            finally:
                connection.close()
        except (OSError, http.client.HTTPException, ValueError) as error:
            return "failed", f"{type(error).__name__}: {error}"
        status = response.status
        if 200 <= status < 300:
            return "sent", None
        refused = 300 <= status < 500 and status not in _LATER
        return "refused" if refused else "answered", f"the webhook answered {status}"
