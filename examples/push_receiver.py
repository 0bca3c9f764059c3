"""Messages pushed over HTTP to a receiver that misbehaves: retries in place, in order of each key, signed.

Three customers have four steps each. The receiver refuses the first request of every step: with status 503, by closing
the connection, by silence, or with an `errno`. The node sends each step again before the customer's next one.

Run it: ``python examples/push_receiver.py``. It starts a node and the receiver.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from running_node import RunningNode, conclude

from pyddmq import Producer

CONFIGURATION = """
topics:
  orders: {{queues: 4}}
groups:
  - group: shop
    topics:
      - topic: orders
        orderKey: KEY
        actions: [Async, AsyncHttp]
        timeout: 500              # ms that one request may take
        maxRetry: 8               # errors: again after 1, 2, 4 ... s
        retryIntervals: [100, -1] # ms, after another errno than 0
        urls: ["http://127.0.0.1:{port}/hook"]
        options: {{AsyncHttp: {{signature: {{keyId: k1, secret: {{env: PUSH_SECRET}}}}}}}}
"""
SECRET = "between-us"
CUSTOMERS = ("ann", "bob", "eve")
MISBEHAVIOURS = ("status 503", "connection closed", "silence", "errno 1")


class Receiver(ThreadingHTTPServer):
    """Remembers what it took, in order, and what was wrong with requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Hook)
        self.seen: set[bytes] = set()
        self.taken: list[str] = []
        self.unsigned = 0
        self.complete = threading.Event()


class Hook(BaseHTTPRequestHandler):
    """One request."""

    server: Receiver

    def do_POST(self) -> None:
        """Check the signature; misbehave the first time, and take the message the second time."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.is_signed(body):
            self.server.unsigned += 1
        step = body.decode()
        if body not in self.server.seen:
            self.server.seen.add(body)
            self.misbehave(step)
            return
        print(f"{step}: taken")
        self.server.taken.append(step)
        self.reply(200, {"errno": 0})
        if len(self.server.taken) == len(CUSTOMERS) * len(MISBEHAVIOURS):
            self.server.complete.set()

    def misbehave(self, step: str) -> None:
        """Refuse a step in the way of its number."""
        how = MISBEHAVIOURS[int(step.split()[1])]
        print(f"{step}: {how}")
        if how == "status 503":
            self.reply(503, {})
        elif how == "silence":
            self.server.complete.wait(2)  # the node waits 0.5 s
        elif how == "errno 1":
            self.reply(200, {"errno": 1, "errmsg": "out of stock"})
        self.close_connection = True

    def is_signed(self, body: bytes) -> bool:
        """Whether the node signed this request."""
        head = [self.headers.get(f"Pyddmq-{name}", "") for name in ("Time", "Key-Id", "Topic")]
        text = "\n".join(["v1", *head, self.path.partition("?")[2], ""]).encode() + body
        right = "v1=" + hmac.new(SECRET.encode(), text, hashlib.sha256).hexdigest()
        return hmac.compare_digest(right, self.headers.get("Pyddmq-Signature", ""))

    def reply(self, status: int, answer: dict[str, object]) -> None:
        """Send an answer."""
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Print no line per request."""


def main() -> None:
    """Push all steps, and check what the receiver took."""
    os.environ["PUSH_SECRET"] = SECRET  # the node reads it from there
    failures = []
    with Receiver() as receiver, RunningNode(CONFIGURATION.format(port=receiver.server_port)) as node:
        threading.Thread(target=receiver.serve_forever, daemon=True).start()
        with Producer(node.producer) as producer:
            for number in range(len(MISBEHAVIOURS)):
                for customer in CUSTOMERS:
                    producer.send("orders", f"{customer} {number}".encode(), key=customer)
        if not receiver.complete.wait(60):
            failures.append(f"after 60 s the receiver had only {receiver.taken}")
        receiver.shutdown()
    for customer in CUSTOMERS:
        steps = [step for step in receiver.taken if step.startswith(customer)]
        if steps != [f"{customer} {number}" for number in range(len(MISBEHAVIOURS))]:
            failures.append(f"the steps of {customer} were taken as {steps}")
    if receiver.unsigned:
        failures.append(f"{receiver.unsigned} requests had no valid signature")
    conclude(failures)


if __name__ == "__main__":
    main()
