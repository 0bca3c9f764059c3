"""Nodes for pictures of the console: one with life in it, and one without; and an address of each page.

`python -m tests.console.scenes FOLDER [SECONDS]` (`make pictures`) writes a picture of every page and of two dialogs.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyddmq import LocalState, OutgoingMessage, PulledMessage, TransactionListener, TransactionMessage
from tests.integration.proxy.admin.test_admin_node import ServedNode
from tests.patient import Consumer, Producer, TransactionProducer

LONG = "a-very-long-name-of-a-topic-without-any-place-to-break-it-" + "0123456789" * 4
YAML = f"""
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, drainSeconds: 1, brokerName: eu-1}}
lag: {{every: 1s}}
topics:
  orders: {{queues: 4}}
  payments: {{queues: 2, mask: [$.card.number]}}
  shipments: {{queues: 2}}
  notices: {{queues: 1}}
  {LONG}: {{queues: 1}}
groups:
  - group: billing
    topics: [{{topic: orders, orderKey: KEY, maxPullBatchSize: 16, retryIntervals: [200, 500], onExhausted: stopKey}}]
  - group: settlement
    topics: [{{topic: payments, maxPullBatchSize: 16, retryIntervals: [100]}}]
  - group: warehouse
    topics: [{{topic: orders, maxPullBatchSize: 16}}, {{topic: shipments, maxPullBatchSize: 16}}]
  - group: mailer
    topics: [{{topic: notices}}, {{topic: payments}}]
  - group: {LONG}
    topics: [{{topic: {LONG}, orderKey: KEY, maxPullBatchSize: 16, retryIntervals: [], onExhausted: stopKey}}]
"""
EMPTY = "node: {producerPort: 0, consumerPort: 0, adminPort: 0, drainSeconds: 1}"
WIDTHS = (1280, 390)
SCHEMES = ("light", "dark")
PATHS = {
    "overview": "/",
    "groups": "/groups",
    "group": "/group?group=billing",
    "group-long": f"/group?group={LONG}",
    "topics": "/topics",
    "topic": "/topic?topic=payments",
    "topic-long": f"/topic?topic={LONG}",
    "messages": "/message",
    "found": "/message?topic=payments&from=10m",
    "message": "/message?topic=payments&queue=0&offset=0",
    "message-long": f"/message?topic={LONG}&queue=0&offset=0",
    "dead-letters": "/dead-letters",
    "letters": "/dead-letters?group=settlement",
    "timers": "/waiting?kind=timers",
    "delays": "/waiting?kind=delays",
    "transactions": "/waiting?kind=transactions",
    "clients": "/clients",
    "node": "/node",
    "configuration": "/configuration",
    "audit": "/audit",
    "sign-in": "/sign-in",
    "refusal": "/group?group=none",
}
"""By the name of the picture."""
EMPTY_PATHS = {name: path for name, path in PATHS.items() if "=" not in path or path.startswith("/waiting")}


class Undecided(TransactionListener):
    """Decides no transaction."""

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Leave it undecided."""
        return LocalState.UNKNOWN

    def check(self, message: TransactionMessage) -> LocalState | None:
        """Leave it undecided."""
        return LocalState.UNKNOWN


class Life:
    """Producers and consumers of a node, until `stop`.

    Args:
        node: The node.
    """

    def __init__(self, node: ServedNode) -> None:
        self._node = node
        self._ended = threading.Event()
        self._random = random.Random(1)
        works: list[tuple[Callable[..., None], tuple[Any, ...]]] = [
            (self._produce, ()),
            (self._consume, ("billing", "orders", self._of_account)),
            (self._consume, ("settlement", "payments", self._of_bank)),
            (self._consume, ("warehouse", "shipments", self._never)),
            (self._consume, (LONG, LONG, self._always)),
        ]
        self._threads = [threading.Thread(target=work, args=given, daemon=True) for work, given in works]
        for thread in self._threads:
            thread.start()
        with TransactionProducer(node.ready["producer"], "shop", Undecided()) as halves:
            for number in range(3):
                halves.send_in_transaction(
                    OutgoingMessage(topic="orders", body=b'{"half": true}', key=f"account-{number}")
                )

    def stop(self) -> None:
        """End them."""
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _produce(self) -> None:
        with Producer(self._node.ready["producer"]) as producer:
            producer.send(LONG, b'{"text": "%s"}' % (b"x" * 300), key="key-" * 30, properties={"p" * 90: "v" * 200})
            number = 0
            while not self._ended.is_set():
                for topic, count in (("orders", 10), ("payments", 4), ("shipments", 2), ("notices", 1)):
                    producer.send_batch([self._message(topic, number := number + 1) for _ in range(count)])
                key = f"reminder-{number}"
                producer.send(
                    "notices", b'{"text": "reminder"}', key=key, delay_ms=1_000 * (number * 37 % 200_000 + 60)
                )
                producer.send("shipments", b'{"text": "later"}', key=key, delay_level=14 + number % 3)
                self._ended.wait(0.25)

    def _message(self, topic: str, number: int) -> OutgoingMessage:
        customer = self._random.randrange(1000, 1100)
        body = {
            "order": number,
            "customer": f"c-{customer}",
            "amount": self._random.randrange(20_000) / 100,
            "card": {"number": "4111111111111111"},
            "items": [{"sku": "A-17", "count": 2}],
        }
        tag = self._random.choice(["web", "app"])
        return OutgoingMessage(
            topic=topic,
            body=json.dumps(body).encode(),
            key=f"account-{customer}",
            tags=tag,
            properties={"region": "eu"},
        )

    def _consume(self, group: str, topic: str, fails: Callable[[PulledMessage], str]) -> None:
        with Consumer(self._node.ready["consumer"], group, topic) as consumer:
            while not self._ended.is_set():
                for message in consumer.pull(patience_ms=200):
                    reason = fails(message)
                    if reason:
                        consumer.fail(message, reason)
                    else:
                        consumer.ack(message)

    def _of_account(self, message: PulledMessage) -> str:
        return "account is locked" if message.key in ("account-1007", "account-1033") else ""

    def _of_bank(self, _: PulledMessage) -> str:
        reasons = ["card declined", "ledger is read-only", "no answer from https://gateway.bank.example/v2/payments"]
        return self._random.choice(reasons) if self._random.random() < 0.3 else ""

    def _never(self, _: PulledMessage) -> str:
        return ""

    def _always(self, _: PulledMessage) -> str:
        return "a-reason-without-a-space-" * 12


@contextmanager
def lively(folder: Path, seconds: float) -> Iterator[ServedNode]:
    """A node with life in it for so long; then it rests, and its pages stay as they are."""
    node = ServedNode(folder, YAML)
    try:
        life = Life(node)
        time.sleep(seconds)
        life.stop()
        yield node
    finally:
        node.stop()


def take(browser: Any, node: ServedNode, paths: dict[str, str], folder: Path, prefix: str = "") -> None:
    """Write a picture of each page, at each width and in each scheme."""
    for scheme in SCHEMES:
        for width in WIDTHS:
            context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
            page = context.new_page()
            for name, path in paths.items():
                page.goto(f"http://{node.ready['admin']}{path}")
                page.wait_for_load_state("networkidle")
                page.screenshot(path=folder / f"{prefix}{name}-{width}-{scheme}.png", full_page=True)
                button = {"group": "Reset to a time", "timers": "Move"}.get(name)
                if button and page.get_by_role("button", name=button).count():
                    page.get_by_role("button", name=button).first.click()
                    page.screenshot(path=folder / f"{prefix}{name}-dialog-{width}-{scheme}.png")
            context.close()


def main(folder: Path, seconds: float) -> None:
    """Write all pictures."""
    from playwright.sync_api import sync_playwright

    from tests.console.conftest import CHROMIUM

    folder.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver, tempfile.TemporaryDirectory() as place:
        browser = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        for name in ("full", "empty"):
            (Path(place) / name).mkdir()
        with lively(Path(place) / "full", seconds) as node:
            take(browser, node, PATHS, folder)
        empty = ServedNode(Path(place) / "empty", EMPTY)
        try:
            take(browser, empty, EMPTY_PATHS, folder, "empty-")
        finally:
            empty.stop()
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 60.0)
