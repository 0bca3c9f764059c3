"""Changes by HTTP against a server on the loopback: in order, until taken or refused, with a key."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lag.verdicts.webhook import ANSWERS_MAX, WAITING_MAX, Webhook

PATIENCE_SECONDS = 10.0
GAPS = (0.02, 0.05)
EVENTS = [{"key": f"A-{number}", "number": number} for number in range(3)]


class Receiver:
    """Answers with the given statuses, then with 200; keeps what came. The first answer waits for `first`."""

    def __init__(self, statuses: list[int], *, first: threading.Event | None = None) -> None:
        self.came: list[tuple[str, Any]] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.came.append((self.headers["Idempotency-Key"], json.loads(body)))
                if first is not None and len(receiver.came) == 1:
                    first.wait(PATIENCE_SECONDS)
                self.send_response(statuses[len(receiver.came) - 1] if len(receiver.came) <= len(statuses) else 200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/lag?x=1"


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """What is closed at the end."""
    found: list[Any] = []
    yield found
    for each in found:
        if isinstance(each, Webhook):
            each.close(PATIENCE_SECONDS)
        else:
            each.server.shutdown()
            each.server.server_close()


def until(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.005)


def test_changes_come_in_order_each_with_its_key(made: list[Any]) -> None:
    """Posted once each."""
    receiver = Receiver([])
    hook = Webhook(receiver.url, 5_000, GAPS)
    made += [receiver, hook]
    hook.offer(EVENTS)
    until(lambda: hook.counts["sent"] == 3)
    assert receiver.came == [(str(each["key"]), each) for each in EVENTS]
    assert hook.trouble is None


@pytest.mark.parametrize("status", [500, 503, 408, 429])
def test_change_that_was_not_taken_is_posted_again_before_those_behind_it(made: list[Any], status: int) -> None:
    """With the same key."""
    receiver = Receiver([status, status])
    hook = Webhook(receiver.url, 5_000, GAPS)
    made += [receiver, hook]
    hook.offer(EVENTS)
    until(lambda: hook.counts["sent"] == 3)
    assert [key for key, _ in receiver.came] == ["A-0", "A-0", "A-0", "A-1", "A-2"]
    assert hook.counts["failed"] == 2


@pytest.mark.parametrize("status", [302, 400, 401, 404, 413, 422])
def test_change_that_is_refused_does_not_hold_up_the_next(made: list[Any], status: int) -> None:
    """It is dropped, counted, and the reason is kept until the next is taken."""
    receiver = Receiver([200, status])
    hook = Webhook(receiver.url, 5_000, (60.0, 60.0))
    made += [receiver, hook]
    hook.offer(EVENTS[:2])
    until(lambda: hook.counts["refused"] == 1)
    assert hook.trouble == f"the webhook answered {status}"
    hook.offer(EVENTS[2:])
    until(lambda: hook.counts["sent"] == 2)
    assert [key for key, _ in receiver.came] == ["A-0", "A-1", "A-2"]
    assert hook.trouble is None


def test_change_that_the_receiver_always_fails_on_does_not_block_the_next(made: list[Any]) -> None:
    """Ten answers of 500 are enough; the count begins anew with the next change."""
    receiver = Receiver([500] * (ANSWERS_MAX + 2))
    hook = Webhook(receiver.url, 5_000, (0.001, 0.001))
    made += [receiver, hook]
    hook.offer(EVENTS)
    until(lambda: hook.counts["sent"] == 2)
    assert [key for key, _ in receiver.came] == ["A-0"] * ANSWERS_MAX + ["A-1"] * 3 + ["A-2"]
    assert hook.counts == {"sent": 2, "failed": ANSWERS_MAX + 1, "refused": 1, "dropped": 0}


def test_of_too_many_the_oldest_are_dropped(made: list[Any]) -> None:
    """A receiver that is away costs a bounded amount of memory."""
    receiver = Receiver([])
    receiver.server.shutdown()
    receiver.server.server_close()
    hook = Webhook(receiver.url, 1_000, (60.0, 60.0))
    made.append(hook)
    hook.offer([{"key": f"A-{number}"} for number in range(WAITING_MAX + 5)])
    assert hook.counts["dropped"] == 5


def test_receiver_that_does_not_answer_holds_up_no_caller(made: list[Any]) -> None:
    """Offering returns at once, the try ends by its timeout, and the next one comes."""
    first = threading.Event()
    receiver = Receiver([], first=first)
    hook = Webhook(receiver.url, 100, GAPS)
    made += [receiver, hook]
    hook.offer(EVENTS[:1])
    until(lambda: hook.counts["sent"] == 1)
    assert not first.is_set()
    first.set()
    assert hook.counts["failed"] >= 1
    assert [key for key, _ in receiver.came][:2] == ["A-0", "A-0"]


def test_stop_does_not_wait_for_the_gap(made: list[Any]) -> None:
    """The port is closed."""
    receiver = Receiver([])
    receiver.server.shutdown()
    receiver.server.server_close()
    hook = Webhook(receiver.url, 1_000, (60.0, 60.0))
    hook.offer(EVENTS)
    until(lambda: hook.counts["failed"] == 1)
    assert "refused" in str(hook.trouble)
    began = time.monotonic()
    hook.close(PATIENCE_SECONDS)
    assert time.monotonic() - began < 50
