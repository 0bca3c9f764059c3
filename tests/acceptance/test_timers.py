"""Timers as an operator sees them: sent, listed, shown, halted and delivered, from the command line."""

from __future__ import annotations

import signal
from typing import Any
from urllib.request import urlopen

from proxy.client import Consumer
from tests.acceptance.conftest import NodeProcess, StartNode, command

CONFIGURATION = """
topics:
  orders: {queues: 1}
  notes: {queues: 1}
groups:
  - group: readers
    topics:
      - {topic: orders, actions: [Async, PullServer]}
"""


def asked(node: NodeProcess, *arguments: str, code: int = 0) -> list[Any]:
    """Run a command of `timers` and return its lines of JSON."""
    done = command("timers", *arguments, *node.admin(), "--json")
    assert done.code == code, done.err
    return done.json_lines()


def sent(node: NodeProcess, topic: str, *options: str) -> Any:
    """Send a message; return its receipt."""
    done = command("send", topic, "x", "--key", f"key of {topic}", *options, *node.producer(), "--json")
    assert done.code == 0, done.err
    [receipt] = done.json_lines()
    return receipt


def page(node: NodeProcess, path: str) -> str:
    """Fetch a page of the admin port."""
    with urlopen(f"http://{node.ready['admin']}{path}") as response:
        text: str = response.read().decode()
        return text


def test_timers_are_listed_shown_and_survive_a_kill(start_node: StartNode) -> None:
    """In the order of their due times, by topic and time; with what became of one, by id or handle."""
    node = start_node(configuration=CONFIGURATION)
    assert asked(node, "list") == []
    later = sent(node, "orders", "--at", "in 2h")
    sooner = sent(node, "orders", "--delay", "30m")
    other = sent(node, "notes", "--delay", "1h")
    assert later["offset"] == -1
    assert "handle" in other
    assert [each["id"] for each in asked(node, "list")] == [sooner["id"], other["id"], later["id"]]
    assert [each["id"] for each in asked(node, "list", "--topic", "orders", "--from", "in 1h")] == [later["id"]]
    assert [each["id"] for each in asked(node, "list", "--to", "in 90m")] == [sooner["id"], other["id"]]
    assert len(asked(node, "list", "--limit", "1")) == 1
    assert "there are more" in command("timers", "list", "--limit", "1", *node.admin()).out
    node.stop(signal.SIGKILL)
    node = start_node(configuration=CONFIGURATION)
    [shown] = asked(node, "show", other["handle"])
    assert (shown["id"], shown["topic"], shown["state"], shown["key"]) == (
        other["id"],
        "notes",
        "pending",
        "key of notes",
    )
    assert "pending; it is due at" in command("timers", "show", other["id"], *node.admin()).out
    nothing = command("timers", "show", "0" * 32, *node.admin())
    assert (nothing.code, "No record of timer" in nothing.err) == (5, True)
    [stats] = asked(node, "stats")
    assert (stats["pendingTotal"], stats["topics"][0]) == (3, {"topic": "orders", "pending": 2})
    assert 'pyddmq_timers_pending{topic="orders"} 2.0' in page(node, "/metrics")
    assert "3 pending" in page(node, "/")


def test_paused_stage_holds_deliveries_until_it_is_resumed(start_node: StartNode) -> None:
    """What is due meanwhile comes afterwards; pausing twice changes nothing."""
    node = start_node(configuration=CONFIGURATION)
    assert asked(node, "pause", "dequeue_put_message")[0] == {"changed": True, "pausedStages": ["dequeue_put_message"]}
    assert asked(node, "pause", "dequeue_put_message")[0]["changed"] is False
    assert command("timers", "pause", "nonsense", *node.admin()).code == 5
    receipt = sent(node, "orders", "--delay", "200ms")
    with Consumer(node.ready["consumer"], "readers", linger_ms=1_500) as consumer:
        assert consumer.pull() == []
        [shown] = asked(node, "show", receipt["id"])
        assert shown["state"] == "pending"
        assert "paused: dequeue_put_message" in page(node, "/")
        assert asked(node, "resume", "all")[0] == {"changed": True, "pausedStages": []}
        message = next(iter(consumer))
        assert message.key == "key of orders"
    [shown] = asked(node, "show", receipt["handle"])
    assert (shown["state"], shown["delivered"]["offset"]) == ("delivered", message.offset)
    assert shown["delivered"]["storeMs"] >= shown["dueMs"]
    assert asked(node, "list") == []


def test_impossible_options_are_refused_in_words(start_node: StartNode) -> None:
    """Before anything is sent or asked."""
    node = start_node(configuration=CONFIGURATION)
    for options in (("--at", "soon"), ("--delay", "90"), ("--delay", "1s", "--delay-level", "2")):
        done = command("send", "orders", "x", *options, *node.producer())
        assert done.code == 2, done.out
        assert options[0] in done.err
    assert command("timers", "list", "--from", "yesterday", *node.admin()).code == 2
    turned = command("timers", "list", "--from", "in 2h", "--to", "in 1h", *node.admin())
    assert (turned.code, "turn them round" in turned.err) == (5, True)
    foreign = command("timers", "show", "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDEwMDEgQUI=", *node.admin())
    assert "of broker broker-a" in foreign.err
