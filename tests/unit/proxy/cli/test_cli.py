"""The command line in process: what it prints, asks and how it ends, against a scripted peer."""

from __future__ import annotations

import ast
import functools
import http.server
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import msgspec
import pytest
from typer.main import get_command

from proxy.cli.app import build, run
from proxy.cli.command_table import COMMANDS, FOLDERS
from proxy.cli.output import body_fields
from proxy.operate.text import printable
from proxy.operate.views.groups import GroupsAnswer
from proxy.operate.views.topics import TopicInKafka, TopicsAnswer
from proxy.process.exit_codes import ExitCode
from pyddmq import __main__ as main_module
from pyddmq import idl
from pyddmq.client.errors import SEND_REFUSALS
from pyddmq.codes import ResultCode
from pyddmq.testing.client import HANG_UP, ScriptedNode
from tests.patient import PATIENCE_SECONDS, until
from upstream.views import GroupView, SubscriptionView

PRODUCER: Any = idl.load("producer")
CONSUMER: Any = idl.load("consumer")
DOCS = Path(__file__).parents[4] / "docs"


def store_all(_method: str, arguments: Any) -> Any:
    """Script: stores every batch; offsets count from 0 in each batch."""
    receipts = [PRODUCER.Receipt(msgId=f"id{n}", qid="q0", offset=n) for n in range(len(arguments.messages))]
    return PRODUCER.Result(code=0, msg="OK", receipts=receipts)


def deliver(*bodies: bytes) -> Any:
    """Script: one batch with these bodies, then nothing; takes results."""
    messages = [
        CONSUMER.Message(key="k", value=body, tag="t", offset=n, properties={"p": "v"}) for n, body in enumerate(bodies)
    ]
    context = CONSUMER.Context(groupId="g", topic="orders", qid="q0")
    left = [CONSUMER.PullResponse(context=context, messages=messages)]
    empty = CONSUMER.PullResponse(context=CONSUMER.Context(), messages=[])
    return lambda method, _: True if method == "submit" else left.pop() if left else empty


class AdminPages(http.server.BaseHTTPRequestHandler):
    """Serves canned answers: what an admin port that is not ours, or refuses, may say."""

    pages: ClassVar[dict[str, tuple[int, bytes]]] = {}

    def do_GET(self) -> None:
        status, body = self.pages.get(self.path.split("?")[0], (404, b'{"error": {"status": 404, "message": "no"}}'))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@pytest.fixture
def admin_pages() -> Iterator[tuple[str, dict[str, tuple[int, bytes]]]]:
    """Address of a canned admin port, and its pages to fill."""
    AdminPages.pages = {}
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), AdminPages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_address[1]}", AdminPages.pages
        server.shutdown()
        thread.join()


def free_address() -> str:
    """Return an address where nobody listens."""
    with ScriptedNode("producer", lambda _method, _arguments: HANG_UP) as node:
        return node.address


def lines_of(capsys: pytest.CaptureFixture[str]) -> list[Any]:
    """JSON values that were printed."""
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_send_prints_queue_offset_and_id(capsys: pytest.CaptureFixture[str]) -> None:
    """One message from an argument, with every field, and where it went."""
    with ScriptedNode("producer", store_all) as node:
        options = ["--key", "k", "--tag", "t", "--property", "a=b=c", "--hash-id", "3", "--partition", "2"]
        assert run(["send", "orders", "hello", *options, "--producer", node.address]) == ExitCode.OK
        message = node.calls[0][1].messages[0]
    assert capsys.readouterr().out == "orders  queue q0  offset 0  id id0\n"
    assert (message.body, message.key, message.tags, message.properties) == (b"hello", "k", "t", {"a": "b=c"})
    assert (message.hashId, message.partitionId) == (3, 2)


def test_send_reads_a_file_in_batches(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """One message per line, empty lines left out, --batch messages per request, JSON per message."""
    file = tmp_path / "lines"
    file.write_bytes(b"one\r\n\ntwo\n\xffthree")
    with ScriptedNode("producer", store_all) as node:
        arguments = ["send", "orders", "--file", str(file), "--batch", "2", "--json", "--producer", node.address]
        assert run(arguments) == ExitCode.OK
        sent = [[message.body for message in arguments.messages] for _, arguments in node.calls]
    assert sent == [[b"one", b"two"], [b"\xffthree"]]
    assert lines_of(capsys)[2] == {"topic": "orders", "qid": "q0", "offset": 0, "id": "id0", "attempts": 1}


def test_send_reads_stdin(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A pipe needs no option; - says it aloud."""
    with ScriptedNode("producer", store_all) as node:
        for extra in ([], ["-"], ["--file", "-"]):
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"a\nb\n"), isatty=lambda: False))
            assert run(["send", "orders", *extra, "--producer", node.address]) == ExitCode.OK
    assert capsys.readouterr().out.count("2 messages sent to orders") == 3


def has_taken(node: ScriptedNode, count: int) -> bool:
    """Whether so many calls came."""
    return len(node.calls) == count


def test_send_does_not_wait_with_lines_in_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a pipe that pauses, as `tail -f` does, what has come is sent; half a line waits for its other half."""
    reading, writing = os.pipe()
    with ScriptedNode("producer", store_all) as node, os.fdopen(reading, "rb") as pipe:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe, isatty=lambda: False))

        def write() -> None:
            try:
                for number, written in enumerate((b"a\nb\n", b"c\nhal", b"f\n"), 1):
                    os.write(writing, written)
                    until(functools.partial(has_taken, node, number), "what was written to be sent")
            finally:
                os.close(writing)

        writer = threading.Thread(target=write)
        writer.start()
        assert run(["send", "orders", "--json", "--producer", node.address]) == ExitCode.OK
        writer.join(PATIENCE_SECONDS)
        bodies = [[message.body for message in arguments.messages] for _, arguments in node.calls]
    assert bodies == [[b"a", b"b"], [b"c"], [b"half"]]


def test_send_that_stops_halfway_says_how_far_it_came(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What was stored before the refusal is counted, and the line to go on from is named."""
    file = tmp_path / "lines"
    file.write_text("one\ntwo\nthree\n")
    answers = [True, False]

    def script(method: str, arguments: Any) -> Any:
        if answers.pop(0):
            return store_all(method, arguments)
        return PRODUCER.Result(code=11, msg="the body has 9 bytes; the limit is 8")

    with ScriptedNode("producer", script) as node:
        arguments = ["send", "orders", "--file", str(file), "--batch", "2", "--producer", node.address]
        assert run(arguments) == ExitCode.REFUSED
    error = capsys.readouterr().err
    assert "the limit is 8 (code 11)" in error
    assert "Stored before: 2 messages; those from line 3 on are not stored" in error


@pytest.mark.parametrize(
    "wrong",
    ["[" * 100_000, '"key": 5', '"key": "\\ud800"', '"tag": []', '"properties": {"p": null}', '"body": null'],
    ids=lambda wrong: wrong[:20],
)
def test_send_names_the_line_that_is_no_exported_message(
    wrong: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Whatever is wrong with it, and however many were stored before it."""
    file = tmp_path / "exported"
    good = '{"body": "x", "bodyEncoding": "utf-8", "bodyCut": false, "key": null, "tag": "t", "properties": {"p": "v"}'
    file.write_text(f"{good}}}\n{good}}}\n{good}}}\n{good}, {wrong}}}\n")
    with ScriptedNode("producer", store_all) as node:
        arguments = ["send", "orders", "--exported", "--file", str(file), "--batch", "2", "--producer", node.address]
        assert run(arguments) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert "line 4 is not an exported message" in error
    assert "Stored before: 2 messages; those from line 3 on are not stored" in error


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["send", "t", "x", "--property", "novalue"], "NAME=VALUE"),
        (["send", "t", "x", "--file", "f"], "not both"),
        (["send", "t", ""], "empty"),
        (["send", "t", "--file", "/no/such/file"], "cannot read /no/such/file: no such file"),
        (["send", "t", "x", "--producer", "nonsense"], "host:port"),
        (["pull", "g", "--no-ack", "--fail"], "exclude each other"),
        (["pull", "g", "--dead-letters", "--topic", "t"], "remove --topic"),
        (["topics", "--admin", "nonsense"], "host:port"),
        (["send", "t", "x", "--no-such-option"], "No such option"),
        (["nonsense"], "No such command"),
        (["send", "t", "x", "--batch", "0"], "--batch"),
        (["timers", "cancel", "id", ""], "an id is empty"),
        (["delays", "cancel", ""], "an id is empty"),
        (["transactions", "commit", ""], "an id is empty"),
        (["demo", "--break", "nothing"], "nothing"),
        (["send", "t", "x", "--timeout-ms", "99999999999999"], "--timeout-ms"),
        (["demo", "--patience", "inf"], "--patience is inf; pass a number"),
        (["dlq", "redrive", "g", "--all", "--rate", "inf"], "--rate is inf; pass a number"),
        (["lag", "residence", "--journal", "d", "--every", "nan"], "--every is nan; pass a number"),
        (["store", "find", "d", "--regex", "a{99999999999}"], "not a valid regular expression"),
    ],
)
def test_wrong_command_lines_say_what_is_wrong(
    arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2 and a sentence; nothing is contacted."""
    assert run(arguments) == ExitCode.USAGE
    assert text in " ".join(capsys.readouterr().err.replace("│", " ").split())


EVERY_COMMAND = [
    *([name] for name in ("serve", "version", *COMMANDS)),
    *([folder.name, name] for folder in FOLDERS for name in folder.commands),
]


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_help_names_values_and_no_types_of_python(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """A flag has no `<bool>` beside it, an option no `<str>`, and an argument that repeats no `<list[str]>`."""
    assert run([*command, "--help"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "Show this message" in shown
    assert not re.search(r"<(?:bool|str|int|float|path|list)\b", shown)


@pytest.mark.parametrize("command", EVERY_COMMAND, ids=" ".join)
def test_wrong_line_with_json_is_json(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Errors of the parser have the form of other errors, and name the command that shows the right way."""
    assert run([*command, "--no-such-option", "--json"]) == ExitCode.USAGE
    said = capsys.readouterr()
    error = json.loads(said.err)["error"]
    assert (error["exitCode"], said.out) == (ExitCode.USAGE, "")
    assert "--no-such-option" in error["message"]
    assert f"`pyddmq {' '.join(command)} --help`" in error["message"]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nonsense", "--json"], "No such command"),
        (["timers", "nonsense", "--json"], "No such command"),
        (["send", "--json"], "Missing argument"),
        (["send", "t", "x", "--json", "--batch", "0"], "--batch"),
        (["send", "t", "x", "--json", "--key"], "requires an argument"),
    ],
)
def test_wrong_values_with_json_are_json(arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is not a command, missing, or no value of its option."""
    assert run(arguments) == ExitCode.USAGE
    error = json.loads(capsys.readouterr().err)["error"]
    assert (error["exitCode"], text in error["message"]) == (ExitCode.USAGE, True), error


def test_json_after_two_dashes_asks_for_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    """It is an argument there, and the error a text."""
    assert run(["send", "--no-such-option", "--", "t", "--json"]) == ExitCode.USAGE
    assert not capsys.readouterr().err.startswith("{")


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        (["send", "t", "x"], "--producer"),
        (["pull", "g"], "--consumer"),
        (["topics"], "--admin"),
        (["groups"], "--admin"),
        (["stats"], "--admin"),
        (["demo", "--events", "5"], "--producer"),
    ],
)
def test_absent_node_is_a_sentence_with_advice(
    arguments: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 4, how to start a node, how to name another; with --json the error is an object on stderr."""
    address = free_address()
    assert run([*arguments, option, address, "--json"]) == ExitCode.CANNOT_CONNECT
    output = capsys.readouterr()
    error = json.loads(output.err)["error"]
    assert (error["exitCode"], output.out) == (4, "")
    assert address in error["message"]
    assert "`pyddmq serve`" in error["message"]
    assert option in error["message"]


def test_pull_prints_and_acks(capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed is acked with the next pull; --wait-ms ends it."""
    with ScriptedNode("consumer", deliver(b"hello", b"\xff\x1b[2J")) as node:
        assert run(["pull", "g", "--wait-ms", "0", "--consumer", node.address]) == ExitCode.OK
        results = node.calls[1][1]
    assert capsys.readouterr().out.splitlines() == [
        "orders  q0@0  key=k  tag=t  p=v  hello",
        "orders  q0@1  key=k  tag=t  p=v  \\xff\\x1b[2J",
    ]
    assert results.request.result.successOffsets == [0, 1]


@pytest.mark.parametrize(
    ("option", "result", "success", "fail"), [("--fail", "fail", [], [0]), ("--no-ack", "none", None, None)]
)
def test_pull_can_fail_or_leave_messages(
    option: str, result: str, success: list[int] | None, fail: list[int] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    """--fail reports failure, --no-ack nothing; --count ends after so many and asks for no more than that."""
    with ScriptedNode("consumer", deliver(b"\xff")) as node:
        assert run(["pull", "g", option, "--count", "1", "--json", "--consumer", node.address]) == ExitCode.OK
        assert node.calls[0][1].request.maxBatchSize == 1
        submits = [arguments.result for method, arguments in node.calls if method == "submit"]
    (message,) = lines_of(capsys)
    assert message == {
        "topic": "orders",
        "qid": "q0",
        "offset": 0,
        "key": "k",
        "tag": "t",
        "body": "/w==",
        "bodyEncoding": "base64",
        "properties": {"p": "v"},
        "result": result,
    }
    if success is None:
        assert submits == []
    else:
        assert (submits[0].successOffsets, submits[0].failOffsets) == (success, fail)


def test_refused_pull_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """The node's own words; an unknown group has exit code 11."""
    refusal = CONSUMER.PullException(code=1, message="no group 'g' is configured on this node")
    with ScriptedNode("consumer", lambda _method, _arguments: refusal) as node:
        assert run(["pull", "g", "--consumer", node.address]) == ExitCode.NOT_FOUND
    assert "no group 'g' is configured on this node (code 1)" in capsys.readouterr().err


def test_dead_letters_are_pulled_through_the_group_that_reads_them(
    capsys: pytest.CaptureFixture[str], admin_pages: tuple[str, dict[str, tuple[int, bytes]]]
) -> None:
    """The reader is found at the admin port; without one the error shows the lines to add."""
    admin, pages = admin_pages
    groups = [
        GroupView(group=group, topics=[SubscriptionView(topic=topic, state="running", queues=[])])
        for group, topic in (("billing", "orders"), ("reader", "%DLQ%billing"))
    ]
    answer = GroupsAnswer(now_ms=0, groups_total=2, groups=groups, findings=[])
    pages["/api/groups"] = 200, msgspec.json.encode(answer)
    with ScriptedNode("consumer", deliver(b"dead")) as node:
        options = ["--dead-letters", "--count", "1", "--consumer", node.address, "--admin", admin]
        assert run(["pull", "billing", *options]) == ExitCode.OK
        request = node.calls[0][1].request
        assert (request.groupId, request.topic) == ("reader", "%DLQ%billing")
        assert run(["pull", "reader", *options]) == ExitCode.NOT_FOUND
        assert run(["pull", "nobody", *options]) == ExitCode.NOT_FOUND
    error = capsys.readouterr().err
    assert "{group: reader-dead-letters, topics: [{topic: '%DLQ%reader', actions: [PullServer]}]}" in error
    assert "no group 'nobody' is configured" in error


def test_foreign_admin_port_is_named(
    capsys: pytest.CaptureFixture[str], admin_pages: tuple[str, dict[str, tuple[int, bytes]]]
) -> None:
    """Whatever is not our JSON is no admin port; our own refusals keep their words."""
    admin, pages = admin_pages
    pages["/api/topics"] = 200, b"<html>"
    pages["/api/stats"] = 500, b"[]"
    assert run(["topics", "--admin", admin]) == ExitCode.CANNOT_CONNECT
    assert run(["stats", "--admin", admin]) == ExitCode.CANNOT_CONNECT
    assert capsys.readouterr().err.count("not a pyddmq admin port") == 2
    assert run(["groups", "--admin", admin]) == ExitCode.NOT_FOUND
    assert "the node refused: no" in capsys.readouterr().err


@pytest.mark.parametrize("token", ["old\nnew", "\u20acuro"])
def test_token_that_no_header_takes_is_a_sentence(
    token: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    admin_pages: tuple[str, dict[str, tuple[int, bytes]]],
) -> None:
    """A file with two lines, say; the token is not shown."""
    file = tmp_path / "token"
    file.write_text(token, encoding="utf-8")
    monkeypatch.setenv("PYDDMQ_ADMIN_TOKEN_FILE", str(file))
    assert run(["groups", "--admin", admin_pages[0]]) == ExitCode.USAGE
    error = capsys.readouterr().err
    assert (
        error
        == "pyddmq: the token is not one line of ASCII; its file, or variable, must hold one token and nothing else\n"
    )


def test_topic_in_kafka_is_not_deleted_from_a_terminal(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    admin_pages: tuple[str, dict[str, tuple[int, bytes]]],
) -> None:
    """The store has nothing of it to show, and nobody is asked for its name."""
    admin, pages = admin_pages
    in_kafka = [TopicInKafka(topic="invoices", cluster="main", partitions=2)]
    answer = TopicsAnswer(now_ms=0, topics_total=1, topics=[], in_kafka=in_kafka)
    pages["/api/topics"] = 200, msgspec.json.encode(answer)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert run(["topics", "delete", "invoices", "--admin", admin]) == ExitCode.REFUSED
    assert "topic invoices is in Kafka; delete it there" in capsys.readouterr().err


def test_connection_that_breaks_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """A node that goes away during the call gives no traceback, and the resend is not endless."""
    with ScriptedNode("producer", lambda _method, _arguments: HANG_UP) as node:
        assert run(["send", "t", "x", "--producer", node.address]) == ExitCode.CANNOT_CONNECT
        assert len(node.calls) == 2
    assert "was lost during sendBatchSync: the other side closed it" in capsys.readouterr().err


def test_demo_is_told_that_the_node_is_stopping(capsys: pytest.CaptureFixture[str]) -> None:
    """A refusal that passes is no reason to look at the configuration."""
    draining = PRODUCER.Result(code=20, msg="the node is draining")
    pulls = deliver()

    def consume(method: str, arguments: Any) -> Any:
        return [] if method == "getConsumeStats" else pulls(method, arguments)

    with (
        ScriptedNode("producer", lambda _method, _arguments: draining) as one,
        ScriptedNode("consumer", consume) as two,
    ):
        code = run(["demo", "--events", "5", "--clients", "1", "--producer", one.address, "--consumer", two.address])
    assert code == ExitCode.REFUSED
    error = capsys.readouterr().err
    assert "the node is draining (code 20). Trying again in a moment may help." in error
    assert "sample configuration" not in error


def test_version_prints_the_installed_version(capsys: pytest.CaptureFixture[str]) -> None:
    """Plain and as JSON."""
    assert run(["version"]) == ExitCode.OK
    assert re.fullmatch(r"pyddmq \d+\.\d+\.\d+(\+g[0-9a-f]{8})?\n", capsys.readouterr().out)
    assert run(["version", "--json"]) == ExitCode.OK
    assert set(lines_of(capsys)[0]) == {"version"}


def test_main_is_read_by_an_old_python_and_says_so() -> None:
    """The entry point is in the language of 3.8 and knows which versions will do."""
    for name in ("__main__.py", "__init__.py", "rooms.py"):
        ast.parse(Path(main_module.__file__).with_name(name).read_text(), feature_version=(3, 8))
    assert main_module.python_problem((3, 11, 0)) is None
    assert main_module.python_problem((4, 0, 0)) is None
    assert "3.10" in str(main_module.python_problem((3, 10, 4)))


def test_wrong_python_has_its_exit_code() -> None:
    """The entry point, which imports nothing of ours, ends with the code of the table."""
    assert int(main_module.EXIT_WRONG_PYTHON) == ExitCode.WRONG_PYTHON


def test_send_refusals_have_known_codes() -> None:
    """Every exception class of a refusal belongs to a code of the wire's table, and every one is documented."""
    text = (DOCS / "client.md").read_text()
    for code, kind in SEND_REFUSALS.items():
        assert code in list(ResultCode)
        assert f"`{kind.__name__}`" in text


def test_bodies_cannot_drive_the_terminal() -> None:
    """Control characters are printed as escapes; text stays text, in JSON too."""
    assert printable("grün\x1b[31m\r") == "grün\\x1b[31m\\r"
    assert body_fields("grün".encode()) == {"body": "grün", "bodyEncoding": "utf-8"}


def test_command_is_up_without_what_only_a_node_needs() -> None:
    """A command that asks a node for a figure waits for no store, no Thrift and no configuration to be imported."""
    heavy = ("broker.store", "upstream.delivery.group", "conf.models", "thriftpy2", "pydantic", "structlog", "aiohttp")
    script = (
        f"import sys, proxy.cli.app, proxy.cli.command_table; print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_a_command_that_is_made_alone_is_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    """Which commands are made hangs on the first word, and what they are does not."""
    words = [*COMMANDS, *(folder.name for folder in FOLDERS), "serve", "version"]
    whole = get_command(build())
    assert sorted(whole.commands) == sorted(words)  # type: ignore[attr-defined]
    assert sorted(get_command(build("--help")).commands) == sorted(words)  # type: ignore[attr-defined]
    for word in words:
        alone = get_command(build(word))
        assert set(alone.commands) == {word, "serve", "version"}  # type: ignore[attr-defined]
        shown = []
        for command in (whole, alone):
            with pytest.raises(SystemExit):
                command(args=[word, "--help"], prog_name="pyddmq")
            shown.append(capsys.readouterr().out)
        assert shown[0] == shown[1]
        assert f"pyddmq {word}" in shown[0]


def test_serve_waits_for_no_other_command() -> None:
    """A start of a node imports none of them."""
    script = (
        "import sys; from proxy.cli.app import build; build('serve'); print('proxy.cli.command_table' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_no_option_hides_which_file_is_denied_to_whom() -> None:
    """Typer's own check of a path says `is not readable`, and neither by whom nor why: each command reads it itself."""

    def checked(command: Any, words: str) -> Iterator[str]:
        for param in command.params:
            given = param.type_descriptor
            if given.annotation in (Path, Path | None) and given.parameter_info.readable:
                yield f"{words} {param.name}"
        for name, below in getattr(command, "commands", {}).items():
            yield from checked(below, f"{words} {name}")

    assert list(checked(get_command(build()), "pyddmq")) == []
