"""The installed command against a real node, started and stopped as people do it."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.process.exit_codes import ExitCode
from pyddmq.client.pulling.pulls import VERSION
from tests.acceptance.conftest import CONFIGURATION, FREE_PORTS, NodeProcess, StartNode, command, environment
from tests.forking import PYDDMQ
from tests.patient import LINGER_MS, PATIENCE_SECONDS, Consumer, Producer, quiet_ports

ROOT = Path(__file__).parent.parent.parent
WAIT = ("--wait-ms", str(LINGER_MS))


def test_serve_without_options_uses_the_sample_configuration(start_node: StartNode, tmp_path: Path) -> None:
    """Topics permits and orders are there, data goes to ./data, and SIGTERM ends with 0."""
    node = start_node("--producer-port", "0")
    assert set(node.ready) == {"producer", "consumer", "admin", "data"}
    assert node.ready["data"] == str(tmp_path / "data")
    topics = {each["topic"] for each in command("topics", "--json", *node.admin()).json_lines()[0]["topics"]}
    assert {"permits", "orders"} <= topics
    assert node.stop(signal.SIGTERM) == ExitCode.OK


def test_serve_stops_on_ctrl_c(node: NodeProcess) -> None:
    """SIGINT drains as SIGTERM does; with nothing in flight it is quick and orderly."""
    assert node.stop(signal.SIGINT) == ExitCode.OK


def test_serve_says_which_port_is_taken(node: NodeProcess, tmp_path: Path) -> None:
    """Exit code 7 and the address in a sentence."""
    port = node.ready["producer"].rpartition(":")[2]
    done = command("serve", "--data", tmp_path / "other", "--consumer-port", "0", "--admin-port", "0",
                   "--producer-port", port)  # fmt: skip
    assert done.code == ExitCode.PORT_TAKEN
    assert port in done.err
    assert "Traceback" not in done.err


def test_serve_refuses_data_that_another_node_uses(node: NodeProcess) -> None:
    """Exit code 6, the directory is named, and the first node goes on."""
    done = command("serve", "--data", node.ready["data"], *FREE_PORTS)
    assert done.code == ExitCode.DATA_UNUSABLE
    assert node.ready["data"] in done.err
    assert "Traceback" not in done.err
    assert command("topics", *node.admin()).code == ExitCode.OK


def test_serve_opens_what_is_not_read_once_it_is_accepted(start_node: StartNode, tmp_path: Path) -> None:
    """Refused with exit code 6, opened by --accept, and from then on without it."""
    data = tmp_path / "data"
    (data / "commitlog").mkdir(parents=True)
    (data / "kvStore").mkdir()
    (data / "kvStore" / "CURRENT").write_text("MANIFEST-000005\n")
    (data / "kvStore" / "000011.sst").write_bytes(bytes(1520))
    done = command("serve", "--data", data, *FREE_PORTS)
    assert done.code == ExitCode.DATA_UNUSABLE
    assert "pyddmq serve --accept" in done.err
    for options in (("--accept",), ()):
        node = start_node("--data", data, *options)
        assert command("topics", *node.admin()).code == ExitCode.OK
        assert node.stop() == ExitCode.OK


def test_serve_refuses_data_that_cannot_be_written(tmp_path: Path) -> None:
    """A path through a file is no place for data."""
    (tmp_path / "file").write_text("")
    done = command("serve", "--data", tmp_path / "file" / "data", *FREE_PORTS)
    assert done.code == ExitCode.DATA_UNUSABLE
    assert "Traceback" not in done.err


def test_invalid_configuration_names_file_and_line(tmp_path: Path) -> None:
    """Serve and config check print the same problem; exit code 3."""
    file = tmp_path / "bad.yaml"
    file.write_text("topics:\n  orders: {queues: 0}\n")
    for done in (command("serve", "--config", file, *FREE_PORTS), command("config", "check", file)):
        assert done.code == ExitCode.CONFIG_INVALID
        assert f"{file}:2" in done.err + done.out
        assert "Traceback" not in done.err
    checked = command("config", "check", file, "--json")
    (reported,) = checked.json_lines()
    assert (checked.code, reported["valid"], reported["problems"][0]["line"]) == (ExitCode.CONFIG_INVALID, False, 2)


def test_sample_and_reference_configurations_are_valid() -> None:
    """The reference has one problem: its files of tokens and keys are examples that do not exist."""
    done = command("config", "check", ROOT / "conf/standalone.yaml")
    assert (done.code, "is valid" in done.out) == (ExitCode.OK, True), done.out
    done = command("config", "check", ROOT / "conf/reference.yaml")
    assert (done.code, "is not valid: 1 problem" in done.out) == (ExitCode.CONFIG_INVALID, True), done.out
    assert "access.tokens: /etc/pyddmq/tokens.json cannot be read" in done.out


def test_messages_go_through_a_node(node: NodeProcess, tmp_path: Path) -> None:
    """What is sent comes back with key, tag and properties; queue, offset and id are told, and acked is gone."""
    (sent,) = command(
        "send", "orders", "hello", "--key", "k1", "--tag", "new", "--property", "a=b", "--json", *node.producer()
    ).json_lines()
    assert set(sent) == {"topic", "qid", "offset", "id", "attempts"}
    file = tmp_path / "lines"
    file.write_text("".join(f"line {n}\n" for n in range(250)))
    assert "250 messages sent" in command("send", "orders", "--file", file, *node.producer()).out
    assert "2 messages sent" in command("send", "orders", *node.producer(), stdin="from\nstdin\n").out
    pulled = command("pull", "billing", "--count", "253", "--json", *WAIT, *node.consumer()).json_lines()
    assert len(pulled) == 253
    (first,) = (message for message in pulled if message["key"] == "k1")
    assert (first["qid"], first["offset"]) == (sent["qid"], sent["offset"])
    assert (first["body"], first["tag"], first["properties"]) == ("hello", "new", {"a": "b"})
    assert {message["body"] for message in pulled} == {"hello", "from", "stdin", *(f"line {n}" for n in range(250))}
    nothing = command("pull", "billing", "--wait-ms", "100", *node.consumer())
    assert (nothing.out, nothing.code) == ("", 0)
    assert "no message arrived within 100 ms" in nothing.err


def test_failed_messages_become_dead_letters_that_can_be_read(node: NodeProcess) -> None:
    """After the last of the retryIntervals a message is in %DLQ%, with its origin, and is pulled like any other."""
    command("send", "orders", "bad", "--key", "k", *node.producer())
    for _ in range(2):
        failed = command("pull", "billing", "--fail", "--count", "1", "--json", *WAIT, *node.consumer())
        assert failed.json_lines()[0]["result"] == "fail"
    pull = ["pull", "billing", "--dead-letters", "--count", "1", "--json", *WAIT]
    (letter,) = command(*pull, *node.consumer(), *node.admin()).json_lines()
    assert (letter["topic"], letter["body"], letter["key"]) == ("%DLQ%billing", "bad", "k")
    assert letter["properties"]
    (topic,) = command("topics", "%DLQ%billing", "--json", *node.admin()).json_lines()[0]["topics"]
    assert topic["system"] is True


def test_unacked_messages_show_as_in_flight(node: NodeProcess) -> None:
    """Pull --no-ack leaves the message out; groups tells so, in JSON and in words."""
    command("send", "orders", "one", "--key", "k", *node.producer())
    pulled = command("pull", "billing", "--no-ack", "--count", "1", "--json", *WAIT, *node.consumer()).json_lines()
    assert pulled[0]["result"] == "none"
    (answer,) = command("groups", "billing", "--json", *node.admin()).json_lines()
    (subscription,) = answer["groups"][0]["topics"]
    assert (subscription["topic"], subscription["lag"], subscription["inFlight"]) == ("orders", 1, 1)
    words = command("groups", "billing", *node.admin())
    assert (words.code, "In flight" in words.out, "billing" in words.out) == (ExitCode.OK, True, True)
    assert f"({VERSION})" in words.out


def test_wrong_ports_are_named(node: NodeProcess) -> None:
    """A Thrift client on the admin port and an HTTP client on a Thrift port each get a sentence."""
    sent = command("send", "orders", "x", "--producer", node.ready["admin"])
    assert sent.code == ExitCode.CANNOT_CONNECT
    assert "--producer host:port" in sent.err
    host, _, port = node.ready["producer"].partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=PATIENCE_SECONDS)
    connection.request("GET", "/")
    answer = connection.getresponse()
    assert answer.status == http.client.BAD_REQUEST
    assert node.ready["admin"] in answer.read().decode()
    connection.close()
    assert command("topics", "--admin", node.ready["producer"]).code in (ExitCode.CANNOT_CONNECT, ExitCode.NOT_FOUND)


def test_unframed_thrift_client_is_cut_off_with_a_sentence_in_the_log(node: NodeProcess) -> None:
    """An unframed call ends its connection; the log says what to change."""
    host, _, port = node.ready["consumer"].partition(":")
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as connection:
        connection.sendall(b"\x80\x01\x00\x01\x00\x00\x00\x04pull\x00\x00\x00\x00\x00")
        assert connection.recv(1) == b""
    assert node.stop() == ExitCode.OK
    assert "framed" in node.log_path.read_text()


@pytest.mark.parametrize(
    ("ended_by", "code"), [(signal.SIGTERM, ExitCode.TERMINATED), (signal.SIGINT, ExitCode.INTERRUPTED)]
)
def test_followed_pull_submits_its_results_when_it_is_ended(
    node: NodeProcess, ended_by: signal.Signals, code: ExitCode
) -> None:
    """SIGTERM ends pull --follow with 143 and Ctrl-C with 130; what it printed is acked, and stderr is empty."""
    follower = subprocess.Popen(
        [PYDDMQ, "pull", "billing", "--follow", "--json", *node.consumer()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert follower.stdout is not None
    with Producer(node.ready["producer"]) as producer:
        producer.send("orders", b"followed", key="k")
    assert json.loads(follower.stdout.readline())["body"] == "followed"
    follower.send_signal(ended_by)
    assert follower.communicate(timeout=PATIENCE_SECONDS) == ("", "")
    assert follower.returncode == code
    with Consumer(node.ready["consumer"], "billing") as consumer:
        assert [stats.lag for stats in consumer.stats()] == [0]


def test_followed_pull_survives_a_restart_of_the_node(start_node: StartNode, tmp_path: Path) -> None:
    """The node stops and starts again on its ports; the follower goes on and repeats nothing."""
    port = str(quiet_ports(1)[0])
    (tmp_path / "node.yaml").write_text(CONFIGURATION)
    place = ("--config", tmp_path / "node.yaml", "--data", tmp_path / "data", "--consumer-port", port)
    node = start_node(*place)
    follower = subprocess.Popen(
        [PYDDMQ, "pull", "billing", "--follow", "--count", "2", "--json", *node.consumer()],
        stdout=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert follower.stdout is not None
    command("send", "orders", "before", "--key", "k", *node.producer())
    assert json.loads(follower.stdout.readline())["body"] == "before"
    assert node.stop() == ExitCode.OK
    again = start_node(*place)
    command("send", "orders", "after", "--key", "k", *again.producer())
    assert json.loads(follower.stdout.readline())["body"] == "after"
    assert follower.wait(timeout=PATIENCE_SECONDS) == ExitCode.OK
    follower.stdout.close()


@pytest.mark.parametrize("protocol", ["binary", "compact"])
def test_client_and_node_agree_on_every_field(node: NodeProcess, protocol: str) -> None:
    """Producer and consumer work unchanged against a real node on both protocols, batches and stats included."""
    with Producer(node.ready["producer"], protocol=protocol) as producer:
        first = producer.send("orders", b"\x00\xff", key="ключ", tags="t", properties={"a": "ü"}, partition_id=1)
        second = producer.send("orders", b"two", partition_id=1)
    assert (first.qid[-2:], second.offset - first.offset, bool(first.message_id)) == ("_1", 1, True)
    with Consumer(node.ready["consumer"], "billing", "orders", protocol=protocol) as consumer:
        messages = []
        for message in consumer.messages():
            consumer.ack(message)
            messages.append(message)
            if len(messages) == 2:
                break
        assert [message.body for message in messages] == [b"\x00\xff", b"two"]
        assert list(consumer.messages(idle_ms=50)) == []
        assert (messages[0].key, messages[0].tag, dict(messages[0].properties)) == ("ключ", "t", {"a": "ü"})
        assert consumer.flush() is True
        assert sum(stats.lag for stats in consumer.stats()) == 0


def test_old_python_gets_a_sentence() -> None:
    """The entry point refuses a version below 3.11 with exit code 8, before anything else is imported."""
    script = (
        "import sys; sys.version_info = (3, 9, 18); from pyddmq.__main__ import main\n"
        "try: main()\n"
        "finally: print([name for name in sys.modules if name.startswith('typer')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, timeout=PATIENCE_SECONDS, check=False
    )
    assert (done.returncode, done.stdout) == (ExitCode.WRONG_PYTHON, "[]\n")
    assert "needs 3.11 or later" in done.stderr
