"""Odd surroundings of the command: closed or full outputs, no input, IPv6, own actions that are missing."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import (
    CONFIGURATION,
    FREE_PORTS,
    NodeProcess,
    StartNode,
    command,
    environment,
)
from tests.acceptance.test_reload_and_stop import api, wait_for
from tests.conftest import need
from tests.forking import PYDDMQ
from tests.patient import PATIENCE_SECONDS, Consumer, Producer


def shell(script: str, *, node: NodeProcess | None = None) -> subprocess.CompletedProcess[str]:
    """Run a line of bash with `pyddmq` on its path and the node's addresses in its environment."""
    where = (
        {}
        if node is None
        else {f"PYDDMQ_{port.upper()}": node.ready[port] for port in ("producer", "consumer", "admin")}
    )
    path = f"{PYDDMQ.parent}:{environment()['PATH']}"
    return subprocess.run(
        ["bash", "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        env={**environment(), **where, "PATH": path},
        check=False,
    )


@pytest.mark.parametrize("line", ["seq 1 9000 | pyddmq send orders --key k", "pyddmq pull billing --follow"])
def test_reader_that_has_seen_enough_ends_the_command_quietly(node: NodeProcess, line: str) -> None:
    """`| head -1` ends a command with a code of its own and without a traceback."""
    with Producer(node.ready["producer"]) as producer:
        for number in range(3):
            producer.send("orders", b"%d" % number, key="k")
    done = shell(f"set -o pipefail; {line} | head -1", node=node)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (ExitCode.OUTPUT_CLOSED, "", 1)


def _reader_that_leaves(node: NodeProcess, *options: str) -> subprocess.Popen[str]:
    """Start a pull of `billing`, read the line of one message, and close the pipe."""
    with Producer(node.ready["producer"]) as producer:
        producer.send("orders", b"first", key="k")
    puller = subprocess.Popen(
        [PYDDMQ, "pull", "billing", *options, *node.consumer()],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert puller.stdout is not None
    assert "first" in puller.stdout.readline()
    puller.stdout.close()
    return puller


def _check_quiet_end(puller: subprocess.Popen[str]) -> None:
    with puller:
        assert puller.wait(timeout=PATIENCE_SECONDS) == ExitCode.OUTPUT_CLOSED
        assert puller.stderr is not None
        assert puller.stderr.read() == ""


def test_message_whose_line_nobody_read_is_not_acked(node: NodeProcess) -> None:
    """Of two messages of a key one was printed and acked; the other's line was lost, so it stays unfinished."""
    puller = _reader_that_leaves(node, "--wait-ms", "60000")
    with Producer(node.ready["producer"]) as producer:
        producer.send("orders", b"second", key="k")
    _check_quiet_end(puller)
    with Consumer(node.ready["consumer"], "billing") as consumer:
        assert sum(stats.lag for stats in consumer.stats()) == 1


def test_follower_ends_when_its_reader_has_gone_and_nothing_comes(node: NodeProcess) -> None:
    """Without a further message there is no write that could fail: the pipe itself is asked."""
    puller = _reader_that_leaves(node, "--follow")
    _check_quiet_end(puller)


def test_output_that_cannot_be_written_is_named() -> None:
    """A full device under stdout, and no stdout at all, are sentences."""
    full = shell("pyddmq version > /dev/full")
    assert (full.returncode, full.stderr) == (
        ExitCode.CHECK_FAILED,
        "pyddmq: cannot write the output: no space left on device; pass another file\n",
    )
    closed = shell("pyddmq version >&-")
    assert closed.returncode == ExitCode.USAGE
    assert closed.stderr.startswith("pyddmq: stdout is closed")


def test_export_that_fills_the_disk_is_a_sentence_and_goes_on_later(node: NodeProcess, tmp_path: Path) -> None:
    """With the file's name; what was written of it is a begin that `--resume` takes."""
    file = tmp_path / "exported"
    export = f"pyddmq messages export orders -O {file}"
    shell("seq 1 200 | pyddmq send orders -q", node=node)
    full = shell(f"ulimit -f 32; {export}", node=node)
    assert (full.returncode, full.stderr) == (
        ExitCode.CHECK_FAILED,
        f"pyddmq: cannot write {file}: file too large; pass another file\n",
    )
    assert shell(f"{export} --resume", node=node).returncode == ExitCode.OK
    assert len({json.loads(line)["physical"] for line in file.read_text().splitlines()}) == 200


@pytest.mark.parametrize("place", ["/dev/full", ">(head -c 1 >/dev/null)"])
def test_node_outlives_the_place_of_its_log(tmp_path: Path, place: str) -> None:
    """A log on a full disk, or whose reader has gone, costs lines, which are counted, and nothing else (D5)."""
    with serving(f"--data {tmp_path}/data 2> {place}") as node:
        assert node.stdout is not None
        ready = json.loads(node.stdout.readline())
        for _ in range(3):
            with socket.create_connection(ready["producer"].rsplit(":", 1), timeout=PATIENCE_SECONDS) as connection:
                connection.sendall(b"GET / HTTP/1.1\r\n\r\n")
                assert connection.recv(12) == b"HTTP/1.1 400"
        with Producer(ready["producer"]) as producer:
            producer.send("orders", b"x")
        with urllib.request.urlopen(f"http://{ready['admin']}/metrics", timeout=PATIENCE_SECONDS) as answer:
            found = re.search(r"^pyddmq_log_lines_lost_total ([0-9.e+]+)$", answer.read().decode(), re.MULTILINE)
        assert found is not None
        assert float(found[1]) > 0


def test_node_without_its_checks_says_so(tmp_path: Path) -> None:
    """Python's -O takes assertions away, on which a fault of ours should end: the log says so."""
    with serving(f"--data {tmp_path}/data 2>{tmp_path}/log", before="PYTHONOPTIMIZE=1") as node:
        assert node.stdout is not None
        assert json.loads(node.stdout.readline())["data"] == f"{tmp_path}/data"
    assert '"event": "assertions_off"' in (tmp_path / "log").read_text()


def test_node_outlives_the_reader_of_its_ready_line(tmp_path: Path) -> None:
    """Where stdout takes nothing the addresses are in the log, and the node serves."""
    with serving(f"--data {tmp_path}/data >/dev/full", stderr=subprocess.PIPE) as node:
        assert node.stderr is not None
        reported = next(json.loads(line) for line in node.stderr if "ready_line_not_written" in line)
        with Producer(reported["producer"]) as producer:
            producer.send("orders", b"x")


@contextlib.contextmanager
def serving(rest: str, *, before: str = "", stderr: int | None = None) -> Iterator[subprocess.Popen[str]]:
    """Run a node with its streams led elsewhere by bash; it must end with code 0 when it is told to."""
    script = f"{before} exec pyddmq serve --json {' '.join(FREE_PORTS)} {rest}"
    path = f"{PYDDMQ.parent}:{environment()['PATH']}"
    node = subprocess.Popen(
        ["bash", "-c", script], stdout=subprocess.PIPE, stderr=stderr, text=True, env={**environment(), "PATH": path}
    )
    try:
        yield node
        node.terminate()
        assert node.wait(PATIENCE_SECONDS) == ExitCode.OK
    finally:
        node.kill()
        node.communicate()


def test_send_without_input_says_where_messages_come_from() -> None:
    """A closed stdin is no message, with and without naming it."""
    for script in ("pyddmq send orders <&-", "pyddmq send orders --file - <&-"):
        done = shell(script)
        assert done.returncode == ExitCode.USAGE
        assert done.stderr.startswith("pyddmq: no message; pass it as an argument")


def test_node_on_ipv6_prints_addresses_that_clients_take(start_node: StartNode) -> None:
    """An IPv6 host stands in brackets wherever an address is shown, and every command takes it back."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError as error:
        need(False, f"IPv6 on the loopback ({error})")
    node = start_node(configuration='node: {host: "::1", adminHost: "::1"}\n' + CONFIGURATION)
    assert all(re.fullmatch(r"\[::1\]:\d+", node.ready[port]) for port in ("producer", "consumer", "admin"))
    assert command("send", "orders", "over six", *node.producer()).code == ExitCode.OK
    pulled = command("pull", "billing", "--no-ack", "--count", "1", "--json", "--wait-ms", "60000", *node.consumer())
    assert [line["body"] for line in pulled.json_lines()] == ["over six"]
    in_flight = command("groups", "billing", "--json", *node.admin()).json_lines()[0]["groups"][0]["inFlight"]
    assert in_flight[0]["holder"].startswith("[::1]:")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--host", "203.0.113.7"], "host 203.0.113.7 is not an address of this machine; use 127.0.0.1"),
        (["--host", "nowhere.invalid"], "host nowhere.invalid has no address ("),
    ],
)
def test_host_that_cannot_be_listened_on_is_named(tmp_path: Path, options: list[str], sentence: str) -> None:
    """A foreign address and a name that does not resolve are sentences with the code for ports."""
    file = tmp_path / "node.yaml"
    file.write_text("node: {access: open}\n")
    done = command("serve", *FREE_PORTS, "--config", file, "--data", tmp_path / "data", *options)
    assert done.code == ExitCode.PORT_TAKEN
    assert sentence in done.err
    assert "Traceback" not in done.err


def test_option_cannot_open_a_node_that_its_configuration_keeps_closed(tmp_path: Path) -> None:
    """`--host` with another address than the loopback is refused by file, key and remedy before anything is made."""
    file = tmp_path / "node.yaml"
    file.write_text(CONFIGURATION)
    done = command("serve", *FREE_PORTS, "--config", file, "--data", tmp_path / "data", "--host", "203.0.113.7")
    assert done.code == ExitCode.CONFIG_INVALID
    assert re.match(rf"{file}:\d+: node\.host: 203\.0\.113\.7 is not a loopback address", done.err)
    assert "add a section `access` with `rules` beside node" in done.err
    assert "`access: open`" in done.err
    assert not (tmp_path / "data").exists()


def test_missing_action_is_an_error_with_file_and_line(tmp_path: Path) -> None:
    """An action of one's own that cannot be imported names its line, its cause and PYTHONPATH, in check and serve."""
    file = tmp_path / "node.yaml"
    file.write_text(
        CONFIGURATION.replace("actions: [Json, Async, PullServer]", 'actions: [Json, "shop.no:A", PullServer]')
    )
    done = command("config", "check", file)
    assert done.code == ExitCode.CONFIG_INVALID
    assert re.search(
        r"node\.yaml:9: groups\[permits-audit\].*actions\[1\]: .*No module named 'shop'.*PYTHONPATH", done.out
    )
    served = command("serve", *FREE_PORTS, "--config", file, "--data", tmp_path / "data")
    assert (served.code, served.err) == (ExitCode.CONFIG_INVALID, done.out.splitlines()[0] + "\n")


def test_action_that_cannot_be_made_is_a_sentence(
    start_node: StartNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An action whose constructor fails ends `serve` with the code for configurations; a reload with it is refused."""
    (tmp_path / "shaky.py").write_text(
        "from pyddmq.actions import Action\n\n\nclass Shaky(Action):\n"
        "    def __init__(self):\n        raise OSError('no bank')\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    shaky = CONFIGURATION.replace(
        "actions: [Json, Async, PullServer]", 'actions: [Json, Async, "shaky:Shaky", PullServer]'
    )
    node = start_node()
    file = tmp_path / "node.yaml"
    file.write_text(shaky)
    why = ":9: groups[permits-audit].topics[permits].actions: action 'shaky:Shaky' cannot be created: OSError: no bank"
    status, answer = api(node, "/api/reload", "POST")
    assert (status, answer["problems"]) == (409, [f"{file}{why}"])
    served = command("serve", *FREE_PORTS, "--config", file, "--data", tmp_path / "other")
    assert served.code == ExitCode.CONFIG_INVALID
    assert f"{file}{why}" in served.err
    assert "Traceback" not in served.err


def test_configuration_that_vanishes_changes_nothing(start_node: StartNode, tmp_path: Path) -> None:
    """Without its file, and without the folder, the node goes on; when the file is back, changed, it is taken."""
    folder = tmp_path / "etc"
    folder.mkdir()
    file = folder / "node.yaml"
    file.write_text(CONFIGURATION)
    node = start_node("--config", file, "--data", tmp_path / "data")
    file.unlink()
    folder.rmdir()
    status, answer = api(node, "/api/reload", "POST")
    assert (status, "cannot be read" in answer["problems"][0]) == (409, True)
    folder.mkdir()
    file.write_text(CONFIGURATION + "  - {group: late, topics: [{topic: orders}]}\n")
    wait_for(lambda: "late" in {each["group"] for each in api(node, "/api/groups")[1]["groups"]}, "the changed file")


def test_log_level_changes_live(start_node: StartNode, tmp_path: Path) -> None:
    """After a reload to `error` the node's own lines of a lower level are no longer written."""
    node = start_node()
    file = tmp_path / "node.yaml"
    file.write_text("node: {logLevel: error}\n" + CONFIGURATION)
    assert api(node, "/api/reload", "POST")[1]["changes"] == ["node.logLevel: changes at once"]
    assert node.stop() == ExitCode.OK
    events = [json.loads(line)["event"] for line in node.log_path.read_text().splitlines()]
    assert "store_opened" in events
    assert "stopped" not in events
