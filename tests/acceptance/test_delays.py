"""Delay levels as an operator sees them: sent, listed and shown from the command line, refused ones too."""

from __future__ import annotations

import signal
from typing import Any
from urllib.request import urlopen

from tests.acceptance.conftest import NodeProcess, StartNode, command
from tests.patient import Consumer

CONFIGURATION = """
node: {messageDelayLevel: 1h 2h}
topics:
  orders: {queues: 1}
  notes: {queues: 1}
groups:
  - group: readers
    topics:
      - {topic: orders, actions: [Async, PullServer]}
"""


def asked(node: NodeProcess, *arguments: str) -> Any:
    """Run a command of `delays` and return its JSON."""
    done = command("delays", *arguments, *node.admin(), "--json")
    assert done.code == 0, done.err
    [answer] = done.json_lines()
    return answer


def sent(node: NodeProcess, topic: str, level: int) -> str:
    """Send a delayed message; return its id."""
    done = command("send", topic, "x", "--key", "k", "--delay-level", str(level), *node.producer(), "--json")
    assert done.code == 0, done.err
    [receipt] = done.json_lines()
    name: str = receipt["id"]
    return name


def cancelled(node: NodeProcess, *arguments: str, code: int = 0) -> list[Any]:
    """Run `delays cancel`; return its lines of JSON."""
    done = command("delays", "cancel", *arguments, *node.admin(), "--json")
    assert done.code == code, done.err
    return done.json_lines()


def test_cancel_says_whether_it_was_in_time(start_node: StartNode) -> None:
    """Cancelled, too late with the place, unknown; final over a kill, and the same when asked again."""
    node = start_node(configuration=CONFIGURATION.replace("1h 2h", "1s 1h 2h"))
    soon, waits, other = sent(node, "orders", 1), sent(node, "orders", 2), sent(node, "notes", 3)
    [result] = cancelled(node, waits)
    assert (result["id"], result["topic"], result["outcome"]) == (waits, "orders", "cancelled")
    assert result["dueMs"] is not None
    [unknown] = cancelled(node, "0" * 32, code=11)
    assert unknown["outcome"] == "unknown"
    with Consumer(node.ready["consumer"], "readers", linger_ms=3_000) as consumer:
        assert next(iter(consumer)).offset == 0
    [late] = cancelled(node, soon, code=5)
    assert (late["outcome"], "orders, queue 0, offset 0" in late["text"]) == ("tooLate", True)
    node.stop(signal.SIGKILL)
    node = start_node(configuration=CONFIGURATION.replace("1h 2h", "1s 1h 2h"))
    assert [each["outcome"] for each in cancelled(node, waits, other)] == ["cancelled", "cancelled"]
    assert asked(node, "list")["pendingTotal"] == 0
    address = node.ready["admin"]
    with urlopen(f"http://{address}/metrics") as response:
        assert b"pyddmq_delays_cancelled_total 1.0" in response.read()


def test_selection_is_shown_before_it_is_cancelled(start_node: StartNode) -> None:
    """By topic and level; --yes does it; all of them too."""
    node = start_node(configuration=CONFIGURATION)
    for topic, level in (("orders", 1), ("notes", 1), ("orders", 2), ("orders", 2)):
        sent(node, topic, level)
    shown = command("delays", "cancel", "--topic", "orders", "--level", "2", *node.admin())
    assert (shown.code, "2 messages would be cancelled; pass --yes to cancel" in shown.out) == (0, True)
    assert asked(node, "list")["pendingTotal"] == 4
    done = command("delays", "cancel", "--topic", "orders", "--level", "2", "--yes", *node.admin())
    assert "2 messages cancelled, 0 too late, 0 unknown" in done.out
    assert [each["outcome"] for each in cancelled(node, "--all", "--yes", "--rate", "100")] == ["cancelled"] * 2
    assert asked(node, "list")["pendingTotal"] == 0
    for wrong in ((), ("0" * 32, "--all")):
        assert command("delays", "cancel", *wrong, *node.admin()).code == 2


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
    with urlopen(f"http://{address}/waiting?kind=delays") as response:
        assert b"<h2>Levels</h2>" in response.read()
