"""Messages that are delivered only if the program's own transaction commits: a TransactionProducer.

Start a node (``make run``) and run it from a checkout:
``.venv/bin/python examples/transaction_producer.py [HOST:PORT]``. Each order is a row in an SQLite database, written in
the same transaction as the id of its message. The first order is committed, the second is rolled back since its stock
is empty, and the third is not told at all: the node asks, and the answer is found in the database, as another process
of the producer group would find it.
"""

from __future__ import annotations

import contextlib
import sqlite3
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

# The checkout's rooms are import packages; an installed pyddmq needs no path.
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from pyddmq import LocalState, OutgoingMessage, TransactionMessage, TransactionProducer

CHECKS_PATIENT = 3
"""Checks until an order that is not there counts as one that will never be."""


class Orders:
    """The local transactions: rows of a table. Every process of the group has the same answers."""

    def __init__(self, path: str) -> None:
        self._path = path
        self.checked = threading.Event()
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("CREATE TABLE IF NOT EXISTS orders (transaction_id TEXT PRIMARY KEY, item TEXT)")

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Write the order, with the transaction's id, or leave it."""
        item, told = arg
        if item == "sold out":
            return LocalState.ROLLBACK
        with contextlib.closing(sqlite3.connect(self._path)) as database, database:
            database.execute("INSERT INTO orders VALUES (?, ?)", (message.transaction_id, item))
        return LocalState.COMMIT if told else None

    def check(self, message: TransactionMessage) -> LocalState | None:
        """Look whether the order was written; called in another thread."""
        with contextlib.closing(sqlite3.connect(self._path)) as database:
            found = database.execute(
                "SELECT item FROM orders WHERE transaction_id = ?", (message.transaction_id,)
            ).fetchone()
        print(f"check {message.check_times} of the order for {message.key}: {'written' if found else 'not there'}")
        if not found and message.check_times < CHECKS_PATIENT:
            # Another process may still be about to write it.
            return LocalState.UNKNOWN
        self.checked.set()
        return LocalState.COMMIT if found else LocalState.ROLLBACK


def main(address: str, database: str) -> list[str]:
    """Send three orders; returns what became of each."""
    outcomes = []
    orders = Orders(database)
    with TransactionProducer(address, "order-service", orders) as producer:
        for item, told in (("lamp", True), ("sold out", True), ("chair", False)):
            message = OutgoingMessage(topic="orders", body=f'{{"item": "{item}"}}'.encode(), key=item)
            result = producer.send_in_transaction(message, (item, told))
            outcomes.append(f"{item}: {result.state.name}, decided: {result.decided}")
            print(outcomes[-1])
        # The node asks after transactionTimeOut, 6 s unless it is told otherwise.
        orders.checked.wait(60)
    return outcomes


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9613", str(Path(folder) / "orders.db"))
