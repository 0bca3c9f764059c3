"""`pyddmq messages` against a real node and against the files it left."""

from __future__ import annotations

import json
import signal
from pathlib import Path

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import NodeProcess, command


def send(node: NodeProcess, count: int = 30) -> list[str]:
    """Publish numbered messages to `orders`; returns the ids that the producer was told."""
    lines = "".join(f'{{"n": {number}}}\n' for number in range(count))
    done = command("send", "orders", "--json", "--key", "k", "--tag", "t", "--property", "colour=rot",
                   *node.producer(), stdin=lines)  # fmt: skip
    assert done.code == ExitCode.OK, done.err
    return [each["id"] for each in done.json_lines()]


def test_show_and_query_find_a_message_by_every_name(node: NodeProcess) -> None:
    """By the id of the producer, the id of the store, queue and offset, key and time; as text and as JSON."""
    ids = send(node)
    done = command("messages", "show", ids[7], "--json", *node.admin())
    [message] = done.json_lines()
    assert (json.loads(message["body"]), message["key"], message["uniqueKey"]) == ({"n": 7}, "k", ids[7])
    by_store = command("messages", "show", message["id"], *node.admin())
    assert ids[7] in by_store.out
    assert "colour = rot" in by_store.out
    place = ("-t", "orders", "-q", message["queue"], "-o", message["offset"])
    assert command("messages", "show", *place, "--raw", *node.admin()).out == '{"n": 7}'
    assert command("messages", "show", *place, "--json", *node.admin()).json_lines() == [message]
    queried = command("messages", "query", "orders", "--key", "k", "-n", "5", "--json", *node.admin()).json_lines()
    assert [json.loads(each["body"])["n"] for each in queried] == [29, 28, 27, 26, 25]
    assert len(command("messages", "query", "orders", "--from", "10m ago", "--json", *node.admin()).json_lines()) == 20
    searched = command("messages", "query", "orders", "--text", ": 2", "--json", *node.admin()).json_lines()
    assert sorted(json.loads(each["body"])["n"] for each in searched) == [2, *range(20, 30)]
    table = command("messages", "query", "orders", *node.admin())
    assert '{"n": 3}' in table.out
    assert "there are more" in table.out


def test_errors_of_messages_are_sentences(node: NodeProcess) -> None:
    """Unknown topics, bad ids, moments without a zone, offsets that are not there: a sentence and a code."""
    send(node, 1)
    for arguments, text, code in (
        (("query", "nope"), "Topic 'nope' does not exist", ExitCode.NOT_FOUND),
        (("show", "xyz"), "message has the id 'xyz'", ExitCode.NOT_FOUND),
        (("show", "-t", "orders", "-q", "0", "-o", "99"), "no offset 99", ExitCode.NOT_FOUND),
        (("query", "orders", "--from", "2026-01-01T00:00:00"), "no time zone", ExitCode.REFUSED),
    ):
        done = command("messages", *arguments, *node.admin())
        assert (done.code, text in done.err, "Traceback" in done.err) == (code, True, False), done.err
    assert command("messages", "show", *node.admin()).code == ExitCode.USAGE
    assert command("messages", "export", "orders", "--resume", *node.admin()).code == ExitCode.USAGE


def test_export_resumes_and_is_sent_again(node: NodeProcess, tmp_path: Path) -> None:
    """An export that was broken off goes on with what is missing; its lines are published as they were."""
    send(node, 30)
    file = tmp_path / "orders.jsonl"
    assert command("messages", "export", "orders", "-O", file, "-n", "12", *node.admin()).code == ExitCode.OK
    assert command("messages", "export", "orders", "-O", file, *node.admin()).code == ExitCode.USAGE
    file.write_bytes(file.read_bytes()[:-5])
    assert command("messages", "export", "orders", "-O", file, "--resume", *node.admin()).code == ExitCode.OK
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [json.loads(each["body"])["n"] for each in lines] == list(range(30))
    assert command("messages", "export", "orders", *node.admin()).out == file.read_text()
    done = command("send", "permits", "--exported", "--file", file, "--json", *node.producer())
    assert (done.code, len(done.json_lines())) == (ExitCode.OK, 30), done.err
    [again] = command("messages", "show", done.json_lines()[4]["id"], "--json", *node.admin()).json_lines()
    assert (json.loads(again["body"]), again["key"], again["tag"]) == ({"n": 4}, "k", "t")
    assert again["properties"]["colour"] == "rot"


def test_messages_of_a_stopped_or_running_store_need_no_node(node: NodeProcess) -> None:
    """--data reads the files, while a node has them open and after it stopped, and gives the same answers."""
    ids = send(node, 10)
    data = ("--data", node.ready["data"])
    live = command("messages", "show", ids[3], "--json", *data)
    assert live.json_lines() == command("messages", "show", ids[3], "--json", *node.admin()).json_lines(), live.err
    assert node.stop(signal.SIGTERM) == ExitCode.OK
    assert command("messages", "show", ids[3], "--json", *data).json_lines() == live.json_lines()
    assert len(command("messages", "query", "orders", "--key", "k", "--json", *data).json_lines()) == 10
    assert len(command("messages", "export", "orders", *data).json_lines()) == 10
    missing = command("messages", "query", "orders", "--data", "/nonexistent/pyddmq")
    assert missing.code == ExitCode.DATA_UNUSABLE
