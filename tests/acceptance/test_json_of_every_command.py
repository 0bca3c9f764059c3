"""Every command with `--json`, over a node that has something of everything: each line of each output is JSON."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from proxy.cli.command_table import COMMANDS, FOLDERS, Folder
from proxy.process.exit_codes import ExitCode
from pyddmq import Fetcher, OutgoingMessage
from tests.acceptance.conftest import Done, NodeProcess, StartNode, command
from tests.acceptance.test_transactions import Undecided
from tests.patient import Consumer, Producer, TransactionProducer

CONFIGURATION = """
topics:
  orders: {queues: 2}
  notes: {queues: 1}
  rows: {queues: 1}
  lost: {queues: 1}
groups:
  - group: billing
    topics:
      - {topic: orders, orderKey: KEY, actions: [Async, PullServer], timeout: 600000, retryIntervals: [600000]}
  - group: poisoned
    topics:
      - {topic: orders, orderKey: KEY, actions: [Async, PullServer], maxRetry: 0, onExhausted: stopKey}
  - group: dead
    topics:
      - {topic: orders, actions: [PullServer], maxRetry: 0, retryIntervals: []}
  - group: low
    topics:
      - {topic: rows, actions: [LowLevel]}
  - group: losing
    topics:
      - {topic: lost, actions: [PullServer]}
"""
ELSEWHERE = {
    "demo events": "runs until it has published",
    "demo lag": "needs Spark",
    "lag record": "needs Kafka",
    "messages tail": "waits for what is stored then (tests/unit/proxy/cli/test_messages_tail.py)",
}
"""Commands with `--json` that are not run here, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    """A node with something of everything, and what names it.

    Attributes:
        node: The node.
        folder: Of the test: `node.yaml`, `data`.
        ids: Of messages by what they are.
    """

    node: NodeProcess
    folder: Path
    ids: dict[str, str]


def filled(start_node: StartNode, folder: Path) -> Filled:
    """Start a node, and let there be waiting, stuck, dead, stopped, timed, undecided and lost messages."""
    node = start_node(configuration=CONFIGURATION)
    ids = {}
    hour_ms = int(time.time() * 1000) + 3_600_000
    with Producer(node.ready["producer"]) as producer:
        ids["message"] = producer.send("orders", b"\xff\x00", key="k", tags="red", properties={"ü": "a\nb"}).message_id
        producer.send_batch([OutgoingMessage(topic="orders", body=b"x", key=f"k{number}") for number in range(4)])
        producer.send_batch([OutgoingMessage(topic=topic, body=b"x") for topic in ("rows", "lost", "notes")])
        ids["timer"] = producer.send("notes", b"later", deliver_at_ms=hour_ms).message_id
        ids["moved"] = producer.send("notes", b"later", deliver_at_ms=hour_ms).message_id
        ids["level"] = producer.send("notes", b"later", delay_level=18).message_id
        ids["loop"] = producer.send_delay("notes", b"again", at=hour_ms / 1000, every=60, times=3)
    with TransactionProducer(node.ready["producer"], "shop", Undecided()) as shop:
        for name in ("kept", "committed", "rolled back"):
            sent = shop.send_in_transaction(OutgoingMessage(topic="notes", body=b"half", key=name))
            ids[name] = sent.transaction_id
    for group, kept in (("billing", False), ("poisoned", True), ("dead", True)):
        with Consumer(node.ready["consumer"], group, linger_ms=200) as consumer:
            for message in consumer.pull(count_max=2):
                consumer.fail(message)
            if kept:
                consumer.pull(count_max=1)
    with Fetcher(node.ready["consumer"], "low", consumer_id="c") as fetcher:
        fetcher.fetch()
    return Filled(node=node, folder=folder, ids=ids)


def lines_over_a_node(made: Filled) -> Iterator[tuple[str, ...]]:
    """Command lines for a running node, in an order in which each finds what it wants."""
    ids, folder, yaml = made.ids, made.folder, str(made.folder / "node.yaml")
    place = ("--topic", "orders", "--yes", "--key")
    yield ("send", "notes", "hello")
    yield ("pull", "dead", "--count", "1", "--wait-ms", "50")
    yield ("pull", "dead", "--dead-letters", "--count", "1", "--wait-ms", "50")
    yield from [("stats",), ("limits",), ("actions", "list"), ("actions", "list", "AsyncHttp"), ("reload",)]
    yield ("actions", "try", yaml, "billing", "orders", "--body", "ü")
    yield from [
        ("config", "check", yaml),
        ("access", "explain", str(folder / "access.yaml"), "shop", "produce", "topic:orders"),
    ]
    yield ("access", "token", "create", "--file", str(folder / "tokens"), "--principal", "shop")
    yield from [("access", "token", "list", "--file", str(folder / "tokens"))]
    yield ("access", "token", "revoke", "--file", str(folder / "tokens"), "--principal", "shop")
    yield from [
        ("groups", "show"),
        ("groups", "show", "billing"),
        ("groups", "stuck"),
        ("lag", "show"),
        ("lag", "show", "billing"),
    ]
    yield from [("lag", "check", "--max-lag", "1"), ("lag", "slo", "--objective", "60s", "--since", "1h")]
    yield from [("topics", "show"), ("topics", "show", "orders"), ("offsets", "show")]
    yield from [
        ("delays", "list"),
        ("delays", "show", "18"),
        ("dlq", "list"),
        ("dlq", "show", "dead"),
        ("dlq", "stats", "dead"),
    ]
    yield from [("transactions", "list"), ("transactions", "show", ids["kept"]), ("transactions", "stats")]
    yield from [("timers", "list"), ("timers", "show", ids["timer"], "--topic", "notes"), ("timers", "stats")]
    yield from [("messages", "query", "orders"), ("messages", "show", ids["message"], "--topic", "orders")]
    yield from [("groups", "retry", "billing", *place, "k"), ("groups", "skip", "billing", *place, "k")]
    yield from [
        ("groups", "dead-letter", "poisoned", *place, "k"),
        ("groups", "pause", "dead"),
        ("groups", "resume", "dead"),
    ]
    yield from [
        ("offsets", "reset", "losing", "--topic", "lost", "--latest"),
        ("dlq", "redrive", "dead", "--all", "--yes"),
    ]
    yield from [
        ("topics", "create", "new"),
        ("topics", "alter", "new", "--queues", "3"),
        ("topics", "delete", "new", "--yes", "new"),
    ]
    yield from [
        ("delays", "cancel", ids["level"], "--topic", "notes"),
        ("timers", "cancel", ids["timer"], "--topic", "notes"),
    ]
    yield ("timers", "reschedule", ids["moved"], "--at", "in 2h", "--topic", "notes")
    yield from [("timers", "pause", "all"), ("timers", "resume", "all")]
    yield from [("transactions", "commit", ids["committed"]), ("transactions", "rollback", ids["rolled back"])]
    yield from [("transactions", "resume", ids["kept"]), ("tls", "dev", str(folder / "tls"))]


def lines_over_files(folder: Path) -> Iterator[tuple[str, ...]]:
    """Command lines for the data directory that the node left."""
    data = str(folder / "data")
    yield from [("store", each, data) for each in ("broker-conf", "check", "stat", "dump")]
    yield from [("store", "find", data, "--key", "k"), ("store", "backup", data, str(folder / "copy"))]
    yield from [
        ("store", "restore", str(folder / "copy"), str(folder / "again")),
        ("store", "handover", data, "--to", "rocketmq"),
    ]
    yield ("lag", "export", "--journal", data, "--to", str(folder / "exported"))
    yield ("lag", "compact", str(folder / "exported"))
    for words in (
        ("offsets", "show"),
        ("delays", "list"),
        ("dlq", "list"),
        ("transactions", "list"),
        ("timers", "list"),
    ):
        yield (*words, "--data", data)


def has_json(function: Callable[..., int]) -> bool:
    """Whether a command has the option."""
    return "as_json" in function.__code__.co_varnames[: function.__code__.co_kwonlyargcount + 1]


def named(folder: Folder, before: str = "") -> Iterator[tuple[str, Callable[..., int]]]:
    """The commands below a word, with all of their words."""
    for name, function in folder.commands.items():
        yield f"{before}{folder.name} {name}", function
    for each in folder.folders:
        yield from named(each, f"{before}{folder.name} ")


def checked(words: tuple[str, ...], done: Done) -> str | None:
    """What is wrong with how a command ended; None for nothing."""
    try:
        for line in [*done.out.splitlines(), *(done.err.splitlines() if done.code and not done.out else ())]:
            json.loads(line)
    except ValueError:
        return f"{' '.join(words)}: no JSON: {done.out[-400:]}{done.err[-400:]}"
    if any(f'"exitCode": {code},' in done.err for code in (1, ExitCode.USAGE)) or "Traceback" in done.err:
        return f"{' '.join(words)}: ended with {done.code}: {done.out[-400:]}{done.err[-400:]}"
    return None


def test_each_command_prints_json(start_node: StartNode, tmp_path: Path) -> None:
    """None ends with a traceback, and none that has the option is left out."""
    made = filled(start_node, tmp_path)
    (tmp_path / "access.yaml").write_text(
        CONFIGURATION + "access: {rules: [{allow: [produce], to: [shop], on: ['topic:*']}]}\n"
    )
    ports = (*made.node.producer(), *made.node.consumer(), *made.node.admin())
    wrong: list[str] = []
    seen: set[str] = set()

    def run(words: tuple[str, ...]) -> Any:
        seen.update(" ".join(words[:count]) for count in (1, 2, 3))
        needed = (
            ("--producer",) if words[0] == "send" else ("--consumer", "--admin") if words[0] == "pull" else ("--admin",)
        )
        named_ports = [each for name in needed for each in ports[ports.index(name) : ports.index(name) + 2]]
        local = (
            words[0] in ("actions", "config", "access", "tls", "store")
            or "--data" in words
            or words[1:2] in (("export",), ("compact",))
        )
        found = checked(words, command(*words, *(() if local else named_ports), "--json"))
        if found is not None:
            wrong.append(found)

    for words in lines_over_a_node(made):
        run(words)
    made.node.stop()
    for words in lines_over_files(tmp_path):
        run(words)
    every = dict(COMMANDS) | {name: function for folder in FOLDERS for name, function in named(folder)}
    left = {name for name, function in every.items() if has_json(function) and name not in seen}
    assert not wrong, "\n".join(wrong)
    assert left == set(ELSEWHERE)
