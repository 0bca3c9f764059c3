"""When what waits falls due, as the console's page of waiting messages counts it: timers, loops, levels, halves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from conf.loader import loads
from proxy.admin.console.waiting import WaitingPageView, waiting
from proxy.node.reload import Reloader
from proxy.operate.changes.delays import DelayCancelBody, delay_changes
from proxy.operate.changes.steps import MessageName
from proxy.operate.live_node import LiveNode
from pyddmq import OutgoingMessage
from tests.console.scenes import Undecided
from tests.console_page import call_of
from tests.insides import opened_of
from tests.integration.ddmq_tools import Peer
from tests.integration.proxy.node.test_loops_node import loop, now, send
from tests.patient import Producer, TransactionProducer, until
from tests.running_node import RunningNode

YAML = """
node: {messageDelayLevel: 30s 5m 2h}
topics:
  orders: {queues: 2}
"""


def page(node: RunningNode, **query: str) -> WaitingPageView:
    """What the page shows."""

    async def run() -> WaitingPageView:
        return await waiting(call_of(LiveNode(node.node, Reloader(node.node, lambda: loads(YAML))), query))

    found = node.wait_for(run())
    assert not found.problem
    return found


def bars(node: RunningNode, **query: str) -> dict[str, int]:
    """Its bars that are not empty."""
    return {each.name: each.count for each in page(node, **query).bars if each.count}


def test_timers_and_loops_are_counted_by_when_they_fall_due(tmp_path: Path) -> None:
    """A loop by its next occurrence alone."""
    with RunningNode(YAML, tmp_path) as node:
        with Producer(node.producer) as producer, Peer(node.producer) as peer:
            for minutes in (30, 40, 90, 600):
                producer.send("orders", b"{}", delay_ms=minutes * 60_000)
            send(peer, loop(timestamp=now() + 1_200, interval=3_600, times=3, expire=now() + 20_000))
        until(lambda: opened_of(node.node).timers.pending == 5, "the timers")
        assert bars(node) == {"to 1 h": 3, "to 6 h": 1, "to 1 day": 1}


def test_messages_of_delay_levels_are_counted_by_when_they_fall_due(tmp_path: Path) -> None:
    """Those that were cancelled are left out; with a level those of that one."""
    with RunningNode(YAML, tmp_path) as node:
        with Producer(node.producer) as producer:
            for level, count in ((1, 3), (2, 40), (3, 5)):
                producer.send_batch(
                    [OutgoingMessage(topic="orders", body=b"%d" % n, delay_level=level) for n in range(count)]
                )
        ids = [each.delayed.id for each in page(node, kind="delays", level="2").rows if each.delayed]
        [cancel] = delay_changes(node.node)

        async def run() -> Any:
            body = DelayCancelBody(messages=[MessageName(id=each, topic="orders") for each in ids[10:25]])
            return await cancel.run(body)  # type: ignore[misc]

        node.wait_for(run())
        assert bars(node, kind="delays") == {"within 1 min": 3, "to 10 min": 25, "to 6 h": 5}
        assert bars(node, kind="delays", level="2") == {"to 10 min": 25}


def test_transactions_are_counted_by_their_next_check(tmp_path: Path) -> None:
    """By their own time where they have one; what is due already is in the first range; decided ones are left out."""
    checks = "node: {transactionTimeOut: 90000, messageDelayLevel: 30s}\ntopics:\n  orders: {queues: 2}\n"
    with RunningNode(checks, tmp_path) as node:
        with TransactionProducer(node.producer, "shop", Undecided()) as halves:
            for number in range(4):
                halves.send_in_transaction(OutgoingMessage(topic="orders", body=b"%d" % number), None)
        assert bars(node, kind="transactions") == {"to 10 min": 4}
