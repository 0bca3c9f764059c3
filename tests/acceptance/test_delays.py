"""Delay levels as an operator sees them: sent, listed and shown from the command line, refused ones too."""

from __future__ import annotations

from typing import Any
from urllib.request import urlopen

from tests.acceptance.conftest import NodeProcess, StartNode, command

CONFIGURATION = """
node: {messageDelayLevel: 1h 2h}
topics:
  orders: {queues: 1}
  notes: {queues: 1}
"""


def asked(node: NodeProcess, *arguments: str) -> Any:
    """Run a command of `delays` and return its JSON."""
    done = command("delays", *arguments, *node.admin(), "--json")
    assert done.code == 0, done.err
    [answer] = done.json_lines()
    return answer


def test_delayed_messages_are_listed_and_shown(start_node: StartNode) -> None:
    """By level, with counts and due times, and message by message in the order in which they are due."""
    node = start_node(configuration=CONFIGURATION)
    levels = asked(node, "list")["levels"]
    assert [(each["delayMs"], each["pending"]) for each in levels] == [(3_600_000, 0), (7_200_000, 0)]
    assert asked(node, "show", "2")["messages"] == []
    for topic, level in (("orders", 2), ("notes", 1), ("orders", 1)):
        done = command("send", topic, "x", "--key", "k", "--delay-level", str(level), *node.producer())
        assert done.code == 0, done.err
        assert "delayed" in done.out
    levels = asked(node, "list")["levels"]
    assert [(each["level"], each["delayMs"], each["pending"], each["refused"]) for each in levels] == [
        (1, 3_600_000, 2, 0),
        (2, 7_200_000, 1, 0),
    ]
    answer = asked(node, "show")
    assert [(each["topic"], each["level"], each["key"]) for each in answer["messages"]] == [
        ("notes", 1, "k"),
        ("orders", 1, "k"),
        ("orders", 2, "k"),
    ]
    assert all(each["dueMs"] - each["storedMs"] == each["level"] * 3_600_000 for each in answer["messages"])
    assert len(asked(node, "show", "1", "--topic", "orders")["messages"]) == 1
    assert asked(node, "show", "--limit", "2")["cut"]
    assert command("delays", "show", "9", *node.admin()).code != 0
    table = command("delays", "show", *node.admin())
    assert "notes" in table.out
    address = node.ready["admin"]
    with urlopen(f"http://{address}/metrics") as response:
        assert b'pyddmq_delays_pending{level="1"} 2.0' in response.read()
    with urlopen(f"http://{address}/") as response:
        assert b"Delay levels" in response.read()
