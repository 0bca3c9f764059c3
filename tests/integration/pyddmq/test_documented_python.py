"""What the pages show in Python runs as it stands there, a page's blocks in their order."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from random import Random, SystemRandom
from types import MappingProxyType
from typing import Any

import pytest

from broker.consumer import ConsumerOptions, Consumers, OrderlyStatus
from broker.embedded import open_store
from broker.features import ALL
from broker.format.record import split
from broker.format.unique_key import UniqueKeys
from broker.log.batch import BatchMessage, encode_batch
from broker.log.put import Put
from broker.options import StoreOptions
from broker.put_batch import put_batch
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import SystemClock
from broker.store import Store
from broker.tools.readonly import ReadOnlyStore
from broker.transaction.names import State
from pyddmq import LocalState, OutgoingMessage, Producer, TransactionProducer
from pyddmq.testing import ManualClock, SimDisk
from tests.integration.store_tools import HOST
from tests.integration.transaction_tools import Broker, broker
from tests.running_node import RunningNode

ROOT = Path(__file__).parents[3]
OUTLINES = {"docs/api.md"}
"""Their blocks are signatures."""
ELSEWHERE = {
    "docs/actions-push.md",
    "docs/actions-script.md",
    "docs/actions.md",
    "docs/lag.md",
    "docs/lag-cluster.md",
    "docs/spark-messages.md",
    "docs/tls.md",
}
"""`test_own_actions` runs the first; `test_pages`, `test_cluster`, `test_node_stream` of `tests.spark` the others. The
block of docs/tls.md names another machine; `tests.tls.test_clients` does the same at one of its own."""
FOLLOWED = ("docs/tutorial.md", "docs/howto/")
"""`tests.acceptance.test_pages` does all that these say."""
FIRST = "7F000001000000000000000000000000"
"""The offsetMsgId of a store's first record."""
YAML = """
topics:
  orders: {queues: 4}
  events: {queues: 1}
groups:
  - group: orders-billing
    topics:
      - {topic: orders, actions: [Json, Async, PullServer]}
  - group: reports
    topics:
      - {topic: events, actions: [LowLevel]}
"""


def blocks(page: str) -> list[str]:
    """The Python of a page."""
    found: list[str] = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    return found


def run(
    page: str, names: dict[str, Any], *, only: int | None = None, instead: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Run the blocks of a page, or one of them.

    Args:
        page: Its path.
        names: What they take for granted; has what they leave behind afterwards.
        only: Number of the block, from 0.
        instead: Texts to replace: addresses, and ids that only stand for one.
    """
    for number, shown in enumerate(blocks(page)):
        block = shown
        for text, put in instead.items():
            block = block.replace(text, put)
        if only in (None, number):
            exec(compile(block, page, "exec"), names)


def test_every_page_with_python_is_run() -> None:
    """A page that is new, or has its first block, is entered here."""
    pages = {"README.md", *(file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md"))}
    pages = {page for page in pages if not page.startswith(FOLLOWED)}
    here = {"README.md", *(f"docs/{name}.md" for name in ("client", "loops", "transactions", "storage"))}
    here |= {f"docs/{name}.md" for name in ("timers", "delays", "consumers")}
    assert {page for page in pages if blocks(page)} == here | OUTLINES | ELSEWHERE


class Booking:
    """A listener of transactions that knows nothing."""

    def execute(self, message: object, arg: object) -> LocalState:
        """Answer commit."""
        return LocalState.COMMIT

    def check(self, message: object) -> LocalState:
        """Answer rollback."""
        return LocalState.ROLLBACK


def test_clients_send_and_consume_as_the_pages_say(tmp_path: Path) -> None:
    """README, client, loops and the first block of transactions, at a node."""
    with RunningNode(YAML, tmp_path) as node:
        ports = {"127.0.0.1:9613": node.producer, "127.0.0.1:9713": node.consumer}
        seen: list[bytes] = []
        stored: list[bytes] = []

        async def store(*arguments: Any) -> None:
            stored.append(arguments[-1])

        def handle(*arguments: Any) -> None:
            seen.append(arguments[-1])
            names["consumer"].stop()

        names: dict[str, Any] = {
            "handle": handle,
            "bill": handle,
            "store": store,
            "book": lambda arg, transaction_id: bool(arg and transaction_id),
            "is_booked": bool,
            "arg": "order",
            "time": time,
            "Producer": Producer,
        }
        run("README.md", names, instead=ports)
        assert seen == [b'{"customer": {"id": 7}}']
        run("docs/client.md", names, instead=ports)
        assert seen[1:] == [b'{"id": 7}']
        assert set(stored) == {b'{"id": %d}' % number for number in range(100)}
        assert len(stored) == 104
        assert (names["result"].state, names["result"].decided) == (LocalState.COMMIT, True)
        run("docs/loops.md", names, instead=ports)
        names |= {"TransactionProducer": TransactionProducer, "OutgoingMessage": OutgoingMessage}
        run("docs/transactions.md", {**names, "Orders": Booking, "order": 7}, only=0, instead=ports)
        assert node.node.runtime.metrics.value("pyddmq_transactions_committed_total", "orders") == 2


@pytest.fixture
def inside() -> Broker:
    """A store in memory that delivers."""
    found = broker()
    found.store.create_topic("orders", 1)
    return found


def test_what_waits_is_stored_as_the_pages_say(tmp_path: Path, inside: Broker) -> None:
    """Delays and timers, by a client and inside a program; the cancel is in time."""
    with RunningNode(YAML, tmp_path) as node, Producer(node.producer) as producer:
        names: dict[str, Any] = {"producer": producer, "store": inside.store}
        names |= {"moment": inside.clock.wall_ms() + 1_000, "delays": inside.delays}
        run("docs/timers.md", names)
        names["unique_key"] = inside.store.put("orders", b"body", delay_level=3).unique_key.decode()
        run("docs/delays.md", names)
        assert inside.delays.levels[3].pending == 1
    inside.close()


def test_transactions_are_decided_as_the_page_says(inside: Broker) -> None:
    """The second block: a half, its commit, and the checks that are due."""
    reported: list[Any] = []
    names: dict[str, Any] = {
        "transactions": inside.transactions,
        "store": inside.store,
        "topic": inside.store.topics["orders"],
        "body": b"body",
        "block": b"",
        "host": HOST,
        "now_ms": inside.clock.wall_ms(),
        "stored": reported.append,
        "answered": reported.append,
        "Put": Put,
        "State": State,
    }
    run("docs/transactions.md", names, only=1)
    inside.scheduler.run_until_idle()
    assert inside.visible("orders") == [b"body"]
    assert len(reported) == 2
    inside.close()


def test_stores_are_used_as_the_page_says(tmp_path: Path) -> None:
    """Storage: put and read, a batch, a store that is only read, searches."""
    clock = SystemClock()
    names: dict[str, Any] = {
        "Store": Store,
        "open_store": open_store,
        "StoreOptions": StoreOptions,
        "ReadOnlyStore": ReadOnlyStore,
        "RealDisk": RealDisk,
        "SystemClock": SystemClock,
        "SystemRandom": SystemRandom,
        "Metrics": Metrics,
        "BatchMessage": BatchMessage,
        "encode_batch": encode_batch,
        "put_batch": put_batch,
        "split": split,
        "folder": str(tmp_path),
        "clock": clock,
        "keys": UniqueKeys(bytes(4), Random(1)),
    }
    for number in range(4):
        opens = number in (0, 2)
        if not opens:
            names["store"] = Store.open(
                str(tmp_path),
                options=StoreOptions(),
                features=ALL,
                disk=RealDisk(),
                clock=clock,
                random=Random(2),
                metrics=Metrics(),
            )
        run(
            "docs/storage.md",
            names,
            only=number,
            instead={"7F0000010000000000000000000003E8": FIRST, " 0, 41)": " 1, 0)"},
        )
        if not opens:
            names["store"].close()
    assert len(names["query"].found) == 2


def test_consumers_consume_as_the_page_says() -> None:
    """An orderly consumer of a topic's tags."""
    found = broker(SimDisk(), ManualClock(1_700_000_000_000))
    found.store.create_topic("topic", 1)
    found.store.put("topic", b"a", tags="TagA")
    seen: list[bytes] = []

    def listener(batch: Any, _context: object) -> OrderlyStatus:
        seen.extend(message.body for message in batch)
        return OrderlyStatus.SUCCESS

    names: dict[str, Any] = {
        "Consumers": Consumers,
        "ConsumerOptions": ConsumerOptions,
        "store": found.store,
        "disk": found.disk,
        "clock": found.clock,
        "loop": found.scheduler,
        "metrics": found.metrics,
        "listener": listener,
    }
    run("docs/consumers.md", names)
    found.scheduler.advance(1.0)
    names["consumer"].stop()
    assert seen == [b"a"]
    found.close()
