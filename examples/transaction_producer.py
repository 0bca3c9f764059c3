"""Messages that are delivered only if the program's own transaction commits, also when the producer is killed midway.

Each order is a row in an SQLite database, written in one transaction with the id of its message. A first process sends
three orders: one is committed, one is rolled back, and with the third the process is killed after the row was written
and before the node received the outcome. The node then asks another process of the same producer group, which finds the
row in the database.

Run it: ``python examples/transaction_producer.py``. It starts a node of its own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from running_node import RunningNode, conclude

from pyddmq import Consumer, LocalState, OutgoingMessage, TransactionMessage, TransactionProducer

CONFIGURATION = """
node:
  transactionTimeOut: 500         # ms until the node asks about an undecided transaction; default: 6000
  transactionCheckInterval: 500   # ms between two checks; default: 30000
topics:
  orders: {queues: 2}
groups:
  - group: billing
    topics: [{topic: orders, actions: [PullServer]}]
"""
CHECKS_MAX = 3
"""Checks until an order that is not in the database counts as one that was never written."""


class Orders:
    """The local transactions. Every process of the producer group gives the same answers: they are in the database."""

    def __init__(self, path: str) -> None:
        self._path = path
        with self._database() as database:
            database.execute("CREATE TABLE IF NOT EXISTS orders (transaction_id TEXT PRIMARY KEY, item TEXT)")

    def execute(self, message: TransactionMessage, item: str) -> LocalState:
        """Write the order with the transaction's id; called when the half message is stored."""
        if item == "sold out":
            return LocalState.ROLLBACK
        with self._database() as database:
            database.execute("INSERT INTO orders VALUES (?, ?)", (message.transaction_id, item))
        if item == "chair":
            os.kill(os.getpid(), signal.SIGKILL)
        return LocalState.COMMIT

    def check(self, message: TransactionMessage) -> LocalState:
        """Look whether the order was written; called in another thread."""
        with self._database() as database:
            query = "SELECT 1 FROM orders WHERE transaction_id = ?"
            found = database.execute(query, (message.transaction_id,)).fetchone()
        print(f"check {message.check_times} of {message.key}: {'written' if found else 'not found'}")
        if found:
            return LocalState.COMMIT
        # Another process may still be about to write it.
        return LocalState.UNKNOWN if message.check_times < CHECKS_MAX else LocalState.ROLLBACK

    @contextlib.contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        with contextlib.closing(sqlite3.connect(self._path)) as database, database:
            yield database


def produce(address: str, path: str) -> None:
    """Send three orders; the third kills this process."""
    with TransactionProducer(address, "order-service", Orders(path)) as producer:
        for item in ("lamp", "sold out", "chair"):
            message = OutgoingMessage(topic="orders", body=item.encode(), key=item)
            result = producer.send_in_transaction(message, item)
            print(f"{item}: {result.state.name}", flush=True)


def main() -> None:
    """Run the producer that is killed and then another one, and check what was delivered."""
    failures, delivered = [], []
    with tempfile.TemporaryDirectory() as folder, RunningNode(CONFIGURATION) as node:
        path = str(Path(folder) / "orders.db")
        first = subprocess.run([sys.executable, __file__, node.producer, path], check=False)
        if first.returncode != -signal.SIGKILL:
            failures.append(f"the first producer was not killed: exit code {first.returncode}")
        print("chair: the producer was killed")
        with (
            TransactionProducer(node.producer, "order-service", Orders(path)),
            Consumer(node.consumer, "billing") as consumer,
        ):
            for message in consumer.messages(idle_ms=5_000):
                delivered.append(message.body.decode())
                print(f"{delivered[-1]}: delivered")
                if len(delivered) == 2:
                    break
    if sorted(delivered) != ["chair", "lamp"]:
        failures.append(f"delivered were {delivered}, not the two orders that were written")
    conclude(failures)


if __name__ == "__main__":
    if sys.argv[1:]:
        produce(*sys.argv[1:])
    else:
        main()
