"""Dead letters as an operator sees them: listed, counted, redriven by filter, at a rate, and after an abort."""

from __future__ import annotations

import json
import signal
import subprocess
from typing import Any
from urllib.request import urlopen

import pytest

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import NodeProcess, StartNode, command, environment
from tests.forking import PYDDMQ
from tests.patient import Consumer, Producer, until

CONFIGURATION = """
topics:
  orders: {queues: 2}
  notes: {queues: 1}
  elsewhere: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [Async, PullServer], retryIntervals: [], timeout: 60000}
      - {topic: notes, actions: [Json, Async, PullServer], retryIntervals: []}
  - group: second
    topics:
      - {topic: elsewhere, actions: [Async, PullServer], retryIntervals: []}
  - group: reader
    topics:
      - {topic: "%DLQ%billing", actions: [Async, PullServer], retryIntervals: []}
"""


def asked(node: NodeProcess, *arguments: str, code: int = 0) -> Any:
    """Run a command of `dlq` and return its JSON."""
    done = command("dlq", *arguments, *node.admin(), "--json")
    assert done.code == code, done.err
    return json.loads(done.out)


WHY = "ValueError: no such account <b>[bold]x[/]"


@pytest.fixture
def node(start_node: StartNode) -> NodeProcess:
    """A node with 30 dead letters of `orders` and 2 of `notes`, which were no JSON."""
    node = start_node(configuration=CONFIGURATION)
    with Producer(node.ready["producer"]) as producer:
        for number in range(30):
            producer.send("orders", b"%d" % number, key=f"k{number % 3}")
        for _ in range(2):
            producer.send("notes", b"no json")
    fail(node, "billing", 30)
    # They are written after their fails are answered.
    until(lambda: [each["deadLetters"] for each in asked(node, "list")["groups"]] == [32], "32 dead letters")
    return node


def fail(node: NodeProcess, group: str, count: int) -> None:
    """Take so many messages and fail them; they have no retries."""
    failed = 0
    with Consumer(node.ready["consumer"], group) as consumer:
        for message in consumer:
            consumer.fail(message, WHY)
            failed += 1
            if failed == count:
                break


def test_dead_letters_are_listed_shown_and_counted(node: NodeProcess) -> None:
    """By group; one by one with filters; by topic and reason."""
    [group] = asked(node, "list")["groups"]
    assert (group["group"], group["deadLetters"]) == ("billing", 32)
    letters = asked(node, "show", "billing", "--topic", "orders", "--key", "k1")["deadLetters"]
    assert len(letters) == 10
    assert {letter["attempts"] for letter in letters} == {1}
    assert all(letter["reason"].startswith("failed 1 times: failed by 127.0.0.1:") for letter in letters)
    assert all(letter["reason"].endswith(f": {WHY}") for letter in letters)
    assert len(asked(node, "show", "billing", "--limit", "7")["deadLetters"]) == 7
    assert len(asked(node, "show", "billing", "--reason", "failed by")["deadLetters"]) == 30
    [one] = asked(node, "show", "billing", "--id", letters[0]["uniqueKey"])["deadLetters"]
    assert one == letters[0]
    figures = asked(node, "stats", "billing")
    assert figures["deadLetters"] == 32
    assert {each["topic"]: each["count"] for each in figures["kinds"]}["notes"] == 2
    for arguments in (["list"], ["show", "billing"], ["stats", "billing"]):
        assert "billing" in command("dlq", *arguments, *node.admin()).out
    kinds = json.loads(command("topics", "--json", *node.admin()).out)["topics"]
    assert [each["kind"] for each in kinds] == ["user", "user", "user", "dead letters"]
    missing = command("dlq", "show", "nobody", *node.admin())
    assert (missing.code != 0, "never had a dead letter" in missing.err) == (True, True)


def test_redrive_is_a_dry_run_until_it_is_confirmed(node: NodeProcess) -> None:
    """Nothing goes without --yes; what went is recognised; the group gets it as a message of its own topic."""
    usage = command("dlq", "redrive", "billing", *node.admin())
    assert "select dead letters" in usage.err
    turned = command("dlq", "redrive", "billing", "--from", "1h", "--until", "2h", *node.admin())
    assert (turned.code, "swap them" in turned.err) == (ExitCode.REFUSED, True)
    absent = command("dlq", "redrive", "billing", "--id", "nothing", "--yes", *node.admin())
    assert (absent.code, "has the id nothing" in absent.err) == (ExitCode.NOT_FOUND, True)
    dry = asked(node, "redrive", "billing", "--key", "k0")
    assert (dry["wouldRedrive"], dry["redriven"], dry["dryRun"]) == (10, 0, True)
    assert asked(node, "redrive", "billing", "--key", "k0", "--yes")["redriven"] == 10
    seen = []
    with Consumer(node.ready["consumer"], "billing") as consumer:
        for message in consumer:
            seen.append((message.topic, message.key, int(message.body)))
            if len(seen) == 10:
                break
    assert sorted(seen) == [("orders", "k0", number) for number in range(0, 30, 3)]
    again = asked(node, "redrive", "billing", "--key", "k0", "--yes")
    assert (again["redriven"], again["already"]) == (0, 10)
    assert all(each["redriven"]["id"] for each in again["shown"])
    text = command("dlq", "redrive", "billing", "--key", "k0", *node.admin()).out
    assert "already redriven at" in text
    assert asked(node, "redrive", "billing", "--key", "k0", "--again", "--yes")["redriven"] == 10
    assert asked(node, "stats", "billing")["redriven"] == 10
    assert asked(node, "redrive", "billing", "--topic", "notes", "--to", "elsewhere", "--yes")["redriven"] == 2


def test_dead_letters_are_redriven_while_they_are_consumed(node: NodeProcess) -> None:
    """Reading the topic and redriving do not touch each other."""
    with Consumer(node.ready["consumer"], "reader") as consumer:
        messages = iter(consumer)
        first = next(messages)
        assert asked(node, "redrive", "billing", "--topic", "orders", "--yes")["redriven"] == 30
        assert first.topic == "%DLQ%billing"
        got = 1
        while got < 32:
            next(messages)
            got += 1


def test_deleted_topic_is_said_and_costs_nothing(node: NodeProcess) -> None:
    """Those that cannot go are named, counted and kept; the exit code says that there are some."""
    created = command("topics", "create", "passing", *node.admin())
    assert created.code == 0, created.err
    with Producer(node.ready["producer"]) as producer:
        producer.send("elsewhere", b"x")
    fail(node, "second", 1)
    assert command("dlq", "redrive", "second", "--all", "--to", "nowhere", "--yes", *node.admin()).code == 1
    answer = asked(node, "redrive", "second", "--all", "--to", "nowhere", "--yes", code=1)
    assert (answer["redriven"], answer["refused"]) == (0, 1)
    assert answer["shown"][0]["why"] == "topic nowhere does not exist; create it, or pass another (--to)"
    assert asked(node, "redrive", "second", "--all", "--to", "passing", "--yes")["redriven"] == 1


def redriven(node: NodeProcess) -> int:
    """How many dead letters of the group were redriven; without a command's start."""
    with urlopen(f"http://{node.ready['admin']}/api/dead-letters?group=billing&figures=true") as response:
        found: int = json.load(response)["redriven"]
    return found


def test_aborted_redrive_goes_on_where_it_was(node: NodeProcess, start_node: StartNode) -> None:
    """Terminated in the middle of a slow run, and over a kill of the node: every one goes once."""
    run = subprocess.Popen(
        [PYDDMQ, "dlq", "redrive", "billing", "--topic", "orders", "--rate", "1", "--yes", *node.admin()],
        stdout=subprocess.PIPE,
        env=environment(),
    )
    while not redriven(node):
        assert run.poll() is None
    run.terminate()
    run.communicate()
    before = redriven(node)
    assert 0 < before < 30
    node.stop(signal.SIGKILL)
    node = start_node(configuration=CONFIGURATION)
    assert asked(node, "stats", "billing")["redriven"] == before
    answer = asked(node, "redrive", "billing", "--topic", "orders", "--yes")
    assert (answer["redriven"], answer["already"]) == (30 - before, before)
