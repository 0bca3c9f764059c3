"""Actions of a user's own, found by dotted path: the examples of docs/actions.md run as printed, in a real node."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.acceptance.conftest import StartNode
from tests.patient import Consumer, Producer

PAGE = (Path(__file__).parents[2] / "docs/actions.md").read_text()

ASYNCHRONOUS = """
topics:
  orders: {queues: 2}
groups:
  - group: checked-orders
    topics:
      - topic: orders
        actions: [Json, Async, "shop.actions:CreditCheck", PullServer]
        orderKey: KEY
        maxPullBatchSize: 32
"""


def blocks(language: str) -> list[str]:
    """Code blocks of the page in one language."""
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def taken(consumer: Consumer, count: int) -> list[bytes]:
    """Take and ack that many messages, after which none is left; returns their bodies."""
    bodies = []
    for message in consumer.messages():
        bodies.append(message.body)
        consumer.ack(message)
        if len(bodies) == count:
            break
    consumer.flush()
    assert [stats.lag for stats in consumer.stats()] == [0]
    return bodies


@pytest.fixture(autouse=True)
def _shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the examples into a package of their own, beside no installed one."""
    package = tmp_path / "code" / "shop"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "actions.py").write_text("\n\n".join(blocks("python")))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))


def test_example_with_options_filters_and_dead_letters(start_node: StartNode) -> None:
    """An order above the configured amount is consumed, one without an amount is a dead letter, the rest comes."""
    (configuration,) = (block for block in blocks("yaml") if "shop.actions:SmallOrders" in block)
    reader = '  - {group: dead-lettered, topics: [{topic: "%DLQ%small-orders", actions: [PullServer]}]}\n'
    node = start_node(configuration=configuration + reader)
    bodies = [b'{"amount": 7}', b'{"amount": 501}', b'{"amount": "much"}', b'{"amount": 500}']
    with Producer(node.ready["producer"]) as producer:
        for body in bodies:
            producer.send("orders", body, key="k")
    with Consumer(node.ready["consumer"], "small-orders") as consumer:
        assert taken(consumer, 2) == [bodies[0], bodies[3]]
    with Consumer(node.ready["consumer"], "dead-lettered") as consumer:
        dead = next(iter(consumer.messages()))
    assert (dead.body, dead.properties["DLQ_REASON"]) == (bodies[2], "amount is missing or no whole number")


def test_asynchronous_example_resumes_in_order_and_finishes(start_node: StartNode) -> None:
    """What threads resume is handed out in the order of its key; what they finish is consumed and never comes."""
    node = start_node(configuration=ASYNCHRONOUS)
    amounts = [1, 2000, 3, 4, 5000, 6]
    with Producer(node.ready["producer"]) as producer:
        for amount in amounts:
            producer.send("orders", b'{"amount": %d}' % amount, key="k")
    with Consumer(node.ready["consumer"], "checked-orders") as consumer:
        assert taken(consumer, 4) == [b'{"amount": %d}' % amount for amount in amounts if amount < 1000]
