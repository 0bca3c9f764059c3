"""Actions of a user's own, found by dotted path: the examples of docs/actions.md run as printed, in a real node."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.conftest import StartNode
from tests.patient import Consumer, Producer, until

PAGE = (Path(__file__).parents[2] / "docs/actions.md").read_text()

BODY = b'{"amount": %d, "city": "%s"}'
WAITING = """
topics:
  orders: {queues: 2}
groups:
  - group: checked-orders
    topics:
      - topic: orders
        actions: [Json, Async, "shop.actions:CreditCheck", PullServer]
        orderKey: KEY
        maxPullBatchSize: 32
  - group: reported-orders
    topics:
      - topic: orders
        actions: [Json, Async, "shop.actions:only_from", "shop.actions:write_report"]
        options: {"shop.actions:only_from": {names: [Brno]}, "shop.actions:write_report": {timeLimit: 20000}}
        orderKey: KEY
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
    (package / "actions.py").write_text("\n\n".join(block for block in blocks("python") if "def test_" not in block))
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


def test_waiting_examples_go_on_in_order_and_finish(start_node: StartNode) -> None:
    """What goes on is handed out in the order of its key; what is finished is consumed; functions consume theirs."""
    node = start_node(configuration=WAITING)
    amounts = [1, 2000, 3, 4, 5000, 6]
    with Producer(node.ready["producer"]) as producer:
        for amount in amounts:
            producer.send("orders", BODY % (amount, b"Brno" if amount < 4 else b"Praha"), key="k")
    with Consumer(node.ready["consumer"], "checked-orders") as consumer:
        assert [json.loads(body)["amount"] for body in taken(consumer, 4)] == [1, 3, 4, 6]
    with Consumer(node.ready["consumer"], "reported-orders") as consumer:
        until(lambda: [stats.lag for stats in consumer.stats()] == [0], "all are consumed")


def test_tests_of_the_tutorial_pass(tmp_path: Path) -> None:
    """They are run by pytest, as printed, in a folder with the configuration."""
    (test,) = (block for block in blocks("python") if "def test_" in block)
    (configuration,) = (block for block in blocks("yaml") if "shop.actions:SmallOrders" in block)
    (tmp_path / "node.yaml").write_text(configuration)
    (tmp_path / "test_orders.py").write_text(test)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_orders.py"]
    path = os.pathsep.join([str(tmp_path / "code"), str(Path(__file__).parents[2])])
    done = subprocess.run(
        command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_trial_from_the_shell_shows_what_the_page_shows(tmp_path: Path) -> None:
    """The tutorial's command prints what stands there."""
    (shown,) = (block for block in blocks("text") if "pyddmq actions try" in block)
    (configuration,) = (block for block in blocks("yaml") if "shop.actions:SmallOrders" in block)
    (tmp_path / "node.yaml").write_text(configuration)
    first, _, expected = shown.partition("\n")
    done = subprocess.run(
        [sys.executable, "-m", *shlex.split(first.removeprefix("$ "))],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "code"), str(Path(__file__).parents[2])])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == expected, done.stderr
