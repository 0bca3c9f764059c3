"""Timers as an operator sees them: sent, listed, shown, halted and delivered, from the command line."""

from __future__ import annotations

import signal
from typing import Any
from urllib.request import urlopen

from tests.acceptance.conftest import NodeProcess, StartNode, command
from tests.patient import Consumer

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
    assert (nothing.code, "does not exist" in nothing.err) == (11, True)
    [stats] = asked(node, "stats")
    assert (stats["pendingTotal"], stats["topics"][0]) == (3, {"topic": "orders", "pending": 2})
    assert (stats["nextDueMs"], stats["lateMs"]) == (asked(node, "list")[0]["dueMs"], 0)
    assert 'pyddmq_timers_pending{topic="orders"} 2.0' in page(node, "/metrics")
    assert "<h2>Fall due <small>" in page(node, "/waiting")


def test_paused_stage_holds_deliveries_until_it_is_resumed(start_node: StartNode) -> None:
    """What is due meanwhile comes afterwards; pausing twice changes nothing."""
    node = start_node(configuration=CONFIGURATION)
    assert asked(node, "pause", "dequeue_put_message")[0] == {"changed": True, "pausedStages": ["dequeue_put_message"]}
    assert asked(node, "pause", "dequeue_put_message")[0]["changed"] is False
    assert command("timers", "pause", "nonsense", *node.admin()).code == 11
    receipt = sent(node, "orders", "--delay", "200ms")
    with Consumer(node.ready["consumer"], "readers", linger_ms=1_500) as consumer:
        assert consumer.pull() == []
        [shown] = asked(node, "show", receipt["id"])
        assert shown["state"] == "pending"
        assert "Paused stages of the timers: dequeue_put_message." in page(node, "/")
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
    assert (turned.code, "swap them" in turned.err) == (5, True)
    foreign = command("timers", "show", "djEgb3JkZXJzIGJyb2tlci1hIDE3MDAwMDAwMDEwMDEgQUI=", *node.admin())
    assert "from broker broker-a" in foreign.err


def test_cancel_says_whether_it_was_in_time(start_node: StartNode) -> None:
    """Cancelled, too late with the place, unknown; final over a kill, and the same when asked again."""
    node = start_node(configuration=CONFIGURATION)
    waiting, kept = sent(node, "orders", "--delay", "1h"), sent(node, "orders", "--delay", "2h")
    [result] = asked(node, "cancel", waiting["handle"])
    assert (result["id"], result["topic"], result["outcome"]) == (waiting["id"], "orders", "cancelled")
    assert asked(node, "cancel", waiting["id"])[0]["outcome"] == "cancelled"
    assert asked(node, "show", waiting["id"])[0]["state"] == "cancelled"
    soon = sent(node, "orders", "--delay", "50ms")
    with Consumer(node.ready["consumer"], "readers", linger_ms=500) as consumer:
        message = next(iter(consumer))
    [late] = asked(node, "cancel", soon["id"], code=5)
    assert late["outcome"] == "tooLate"
    assert f"queue 0, offset {message.offset}" in late["text"]
    both = asked(node, "cancel", "0" * 32, waiting["id"], code=11)
    assert [each["outcome"] for each in both] == ["unknown", "cancelled"]
    words = command("timers", "cancel", soon["handle"], *node.admin())
    assert (words.code, "too late: delivered at" in words.out) == (5, True)
    node.stop(signal.SIGKILL)
    node = start_node(configuration=CONFIGURATION)
    assert asked(node, "cancel", waiting["id"])[0]["outcome"] == "cancelled"
    assert [each["id"] for each in asked(node, "list")] == [kept["id"]]


def test_selection_is_shown_before_it_is_cancelled(start_node: StartNode) -> None:
    """By topic and time; --yes does it; all of them too."""
    node = start_node(configuration=CONFIGURATION)
    for topic, delay in (("orders", "1h"), ("notes", "1h"), ("orders", "2h"), ("orders", "3h")):
        sent(node, topic, "--delay", delay)
    shown = command("timers", "cancel", "--topic", "orders", "--from", "in 90m", *node.admin())
    assert (shown.code, "2 timers would be cancelled; pass --yes to cancel" in shown.out) == (0, True)
    assert len(asked(node, "list")) == 4
    done = command("timers", "cancel", "--topic", "orders", "--from", "in 90m", "--yes", *node.admin())
    assert "2 timers cancelled, 0 too late, 0 unknown" in done.out
    assert len(asked(node, "cancel", "--all", "--yes", "--rate", "100")) == 2
    assert asked(node, "list") == []
    for wrong in ((), ("0" * 32, "--all")):
        assert command("timers", "cancel", *wrong, *node.admin()).code == 2


def test_rescheduled_timer_comes_at_its_new_moment(start_node: StartNode) -> None:
    """With a new id, once, which the old id tells of; what was delivered is not rescheduled."""
    node = start_node(configuration=CONFIGURATION)
    old = sent(node, "orders", "--delay", "1h")
    [answer] = asked(node, "reschedule", old["id"], "--at", "in 300ms")
    assert (answer["outcome"], answer["id"]) == ("rescheduled", old["id"])
    with Consumer(node.ready["consumer"], "readers", linger_ms=500) as consumer:
        message = next(iter(consumer))
    assert message.key == "key of orders"
    assert asked(node, "show", answer["handle"])[0]["state"] == "delivered"
    [before] = asked(node, "show", old["id"])
    assert (before["state"], before["newId"]) == ("rescheduled", answer["newId"])
    [moved] = asked(node, "cancel", old["id"], code=5)
    assert (moved["outcome"], moved["newId"]) == ("rescheduledBefore", answer["newId"])
    assert f"its id is now {answer['newId']}" in moved["text"]
    [again] = asked(node, "reschedule", old["id"], "--at", "in 1h", code=5)
    assert (again["outcome"], again["newId"]) == ("rescheduledBefore", answer["newId"])
    [late] = asked(node, "reschedule", answer["newId"], "--at", "in 1h", code=5)
    assert (late["outcome"], late["newId"]) == ("tooLate", None)
    assert asked(node, "list") == []
    assert command("timers", "reschedule", old["id"], "--at", "in 9000d", *node.admin()).code in (5, 11)
