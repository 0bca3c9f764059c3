"""Transactions as an operator sees them: listed, shown, decided and resumed from the command line."""

from __future__ import annotations

import json
import signal
from typing import Any
from urllib.request import urlopen

from proxy.process.exit_codes import ExitCode
from pyddmq import LocalState, OutgoingMessage, TransactionMessage
from tests.acceptance.conftest import NodeProcess, StartNode, command
from tests.patient import Consumer, TransactionProducer, until

CONFIGURATION = """
node: {transactionTimeOut: %s, transactionCheckInterval: %s, transactionCheckMax: 1}
topics:
  orders: {queues: 1}
  notes: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, actions: [PullServer]}
"""
LATER = CONFIGURATION % (86_400_000, 86_400_000)
AT_ONCE = CONFIGURATION % (100, 100)


class Undecided:
    """Knows of no transaction what became of it."""

    def execute(self, message: TransactionMessage, arg: Any) -> LocalState | None:
        """Not known."""

    def check(self, message: TransactionMessage) -> LocalState | None:
        """Not known either."""


def send(node: NodeProcess, *keys: str, topic: str = "orders", group: str = "shop") -> list[str]:
    """Leave a transaction undecided per key; returns their ids."""
    producer = TransactionProducer(node.ready["producer"], group, Undecided())
    with producer:
        return [
            producer.send_in_transaction(OutgoingMessage(topic=topic, body=key.encode(), key=key)).transaction_id
            for key in keys
        ]


def asked(node: NodeProcess, *arguments: str, code: ExitCode = ExitCode.OK) -> list[Any]:
    """Run a command of `transactions`, expect an exit code, and return its JSON lines."""
    done = command("transactions", *arguments, *node.admin(), "--json")
    assert done.code == code, done.out + done.err
    return done.json_lines()


def listed(node: NodeProcess, state: str = "undecided") -> list[Any]:
    """Transactions of the admin port's list; a command takes a second to start."""
    with urlopen(f"http://{node.ready['admin']}/api/transactions?state={state}") as response:
        found: list[Any] = json.load(response)["transactions"]
    return found


def pulled(node: NodeProcess, count: int) -> list[bytes]:
    """Bodies that a consumer gets until there are so many, and whatever comes at once after them."""
    found: list[bytes] = []
    with Consumer(node.ready["consumer"], "billing", linger_ms=50) as consumer:
        while True:
            messages = consumer.pull()
            for message in messages:
                found.append(message.body)
                consumer.ack(message)
            if not messages and len(found) >= count:
                return found


def test_undecided_transactions_are_listed_shown_and_decided(start_node: StartNode) -> None:
    """By topic and group; ids at once, final, and the same when told again; the other decision is refused."""
    node = start_node(configuration=LATER)
    assert listed(node) == []
    first, second, third = send(node, "a", "b", "c")
    [note] = send(node, "n", topic="notes", group="writers")
    assert [each["id"] for each in listed(node)] == [first, second, third, note]
    assert [each["id"] for each in asked(node, "list", "--topic", "notes")[0]["transactions"]] == [note]
    [shop] = asked(node, "list", "--group", "shop", "--limit", "2")
    assert [each["id"] for each in shop["transactions"]] == [first, second]
    [stats] = asked(node, "stats")
    counts = [{"topic": "notes", "group": "writers", "count": 1}, {"topic": "orders", "group": "shop", "count": 3}]
    assert (stats["undecidedTotal"], stats["discardedTotal"], stats["pending"]) == (4, 0, counts)
    [shown] = asked(node, "show", first)
    [found] = shown["transactions"]
    assert (found["state"], found["topic"], found["key"], found["group"], found["checks"]) == (
        "undecided",
        "orders",
        "a",
        "shop",
        0,
    )
    [committed, again] = asked(node, "commit", first) + asked(node, "commit", first)
    assert (committed["refused"], committed["already"], again["already"]) == (None, False, True)
    [rolled] = asked(node, "rollback", second)
    assert rolled["refused"] is None
    [refused] = asked(node, "commit", second, code=ExitCode.REFUSED)
    assert "rolled back before" in refused["refused"]
    [unknown] = asked(node, "rollback", "0" * 32, code=ExitCode.NOT_FOUND)
    assert "does not exist" in unknown["refused"]
    assert pulled(node, 1) == [b"a"]
    assert [each["id"] for each in listed(node)] == [third, note]
    words = command("transactions", "show", second, *node.admin())
    assert f"{second}: rolled back" in words.out
    words = command("transactions", "list", *node.admin())
    assert (words.code, third in words.out, first in words.out) == (0, True, False)
    words = command("transactions", "show", third, *node.admin())
    assert "for topic orders, queue 0" in words.out
    address = node.ready["admin"]
    with urlopen(f"http://{address}/waiting?kind=transactions") as response:
        page = response.read()
        assert b'<h2 class="row">Undecided' in page
        assert b"writers" in page
    with urlopen(f"http://{address}/metrics") as response:
        assert b'pyddmq_transactions_pending{topic="orders"} 1.0' in response.read()


def test_selection_is_shown_first_and_decided_with_yes(start_node: StartNode) -> None:
    """Nothing happens without --yes; with it every one is decided, no faster than the rate."""
    node = start_node(configuration=LATER)
    ids = send(node, "a", "b", "c")
    send(node, "n", topic="notes")
    for line in asked(node, "commit", "--topic", "orders"):
        assert line["refused"] == "only shown"
    words = command("transactions", "commit", "--all", *node.admin())
    assert "nothing was changed: 4 transactions would be committed" in words.out
    assert len(listed(node)) == 4
    done = asked(node, "commit", "--topic", "orders", "--rate", "1000", "--yes")
    assert [each["id"] for each in done] == ids
    assert sorted(pulled(node, 3)) == [b"a", b"b", b"c"]
    words = command("transactions", "rollback", "--all", "--yes", *node.admin())
    assert "1 transaction rolled back, 0 refused" in words.out
    assert listed(node) == []
    assert command("transactions", "commit", *node.admin()).code == ExitCode.USAGE
    assert command("transactions", "commit", ids[0], "--all", *node.admin()).code == ExitCode.USAGE


def test_discarded_transactions_are_seen_decided_and_resumed(start_node: StartNode) -> None:
    """After their checks they lie apart; an operator commits, rolls back, or has them checked anew."""
    node = start_node(configuration=AT_ONCE)
    with TransactionProducer(node.ready["producer"], "shop", Undecided()) as producer:
        ids = [
            producer.send_in_transaction(OutgoingMessage(topic="orders", body=key.encode(), key=key)).transaction_id
            for key in ("a", "b", "c")
        ]
        until(lambda: len(listed(node, "discarded")) == 3, "the discards")
    found = listed(node, "discarded")
    assert {each["id"] for each in found} == set(ids)
    assert {each["checks"] for each in found} == {1}
    assert asked(node, "stats")[0]["discardedTotal"] == 3
    by_key = {each["key"]: each["id"] for each in found}
    [committed] = asked(node, "commit", by_key["a"])
    assert (committed["wasDiscarded"], committed["refused"]) == (True, None)
    words = command("transactions", "rollback", by_key["b"], *node.admin())
    assert "rolled back (it was discarded before)" in words.out
    assert [each["id"] for each in listed(node, "discarded")] == [by_key["c"]]
    words = command("transactions", "resume", "--all", "--yes", *node.admin())
    assert "1 transaction resumed, 0 refused" in words.out
    [refused] = asked(node, "resume", by_key["b"], code=ExitCode.REFUSED)
    assert "only discarded transactions can be resumed" in refused["refused"]
    [line] = asked(node, "commit", by_key["c"])
    assert line["refused"] is None
    assert sorted(pulled(node, 2)) == [b"a", b"c"]


def test_decisions_survive_a_kill_and_another_process_decides_the_rest(start_node: StartNode) -> None:
    """Halves, decisions and discards are what they were; a producer that never sent anything is asked."""
    node = start_node(configuration=LATER)
    first, second, third = send(node, "a", "b", "c")
    asked(node, "commit", first)
    asked(node, "rollback", second)
    node.stop(signal.SIGKILL)
    node = start_node(configuration=AT_ONCE)
    assert [each["id"] for each in listed(node)] in ([third], [])
    [again] = asked(node, "commit", first)
    assert again["already"]

    class Decides(Undecided):
        def check(self, message: TransactionMessage) -> LocalState | None:
            return LocalState.COMMIT

    with TransactionProducer(node.ready["producer"], "shop", Decides()):
        assert sorted(pulled(node, 2)) == [b"a", b"c"]
