"""What commands are told and say, where the surroundings are not UTF-8 or an option is empty."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import FREE_PORTS, NodeProcess, StartNode, command
from tests.acceptance.test_cli_edges import shell


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_output_in_another_encoding_loses_nothing(node: NodeProcess, encoding: str) -> None:
    """Where stdout cannot take a character, JSON has its escape and a table is drawn in ASCII."""
    assert shell("pyddmq send orders 'ü 数 😀' --key k", node=node).returncode == ExitCode.OK
    reported = shell(f"PYTHONIOENCODING={encoding} pyddmq messages query orders --key k --json", node=node)
    assert [json.loads(line)["body"] for line in reported.stdout.splitlines()] == ["ü 数 😀"]
    table = shell(f"PYTHONIOENCODING={encoding} pyddmq topics", node=node)
    assert (table.returncode, table.stderr) == (ExitCode.OK, "")
    assert table.stdout.isascii()
    assert "| orders " in table.stdout
    pulled = shell(f"PYTHONIOENCODING={encoding} pyddmq pull billing >/dev/null", node=node)
    assert (pulled.returncode, pulled.stderr) == (ExitCode.OK, "")


@pytest.mark.parametrize(
    "line",
    [
        r"pyddmq send orders x --key $'\xff'",
        r"pyddmq send orders x --property $'a=\xff'",
        r"pyddmq send orders x --producer $'\xff:1'",
        r"pyddmq pull $'\xff'",
        r"pyddmq groups $'\xff'",
        r"pyddmq topics create $'\xff'",
    ],
)
def test_argument_that_is_no_text_is_named(line: str) -> None:
    """An argument in another encoding is a wrong command line, before anybody is asked."""
    done = shell(line)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith("pyddmq: the argument `")
    assert r"\udcff" in done.stderr
    assert "is not valid UTF-8" in done.stderr


def test_body_and_paths_may_be_any_bytes(start_node: StartNode, tmp_path: Path) -> None:
    """A body of bytes is sent as it is, and a data directory may have any name."""
    data = tmp_path / "sp ace \udcff 数"
    node = start_node("--config", tmp_path / "node.yaml", "--data", data)
    assert node.ready["data"] == str(data)
    assert shell(r"pyddmq send orders $'\xff'", node=node).returncode == ExitCode.OK
    pulled = shell("pyddmq pull billing --json", node=node)
    assert json.loads(pulled.stdout)["body"] == "/w=="


@pytest.mark.parametrize("option", ["--data", "--host"])
def test_serve_refuses_an_empty_option(option: str, tmp_path: Path) -> None:
    """An unset variable must not mean this folder, or every interface (W99)."""
    done = command("serve", *FREE_PORTS, option, "", cwd=tmp_path)
    assert done.code == ExitCode.USAGE
    assert done.err == f"pyddmq: {option} is empty; pass a value, or remove the option\n"
    assert list(tmp_path.iterdir()) == []


def test_serve_that_gives_up_says_why_in_json(node: NodeProcess, tmp_path: Path) -> None:
    """With --json the reason is an object on stderr, whatever it is."""
    config = tmp_path / "node.yaml"
    config.write_text("nodes: {}\n")
    ports = [*FREE_PORTS[:-1], node.ready["admin"].rpartition(":")[2]]
    for code, arguments in (
        (ExitCode.CONFIG_INVALID, ["--config", config]),
        (ExitCode.DATA_UNUSABLE, [*FREE_PORTS, "--data", node.ready["data"]]),
        (ExitCode.PORT_TAKEN, [*ports, "--data", tmp_path / "data"]),
    ):
        done = command("serve", "--json", *arguments)
        error = json.loads(done.err.splitlines()[-1])["error"]
        assert (done.code, error["exitCode"], done.out) == (code, code, "")
        assert error["message"]


def test_port_of_the_other_service_is_named(node: NodeProcess) -> None:
    """A producer on the consumers' port, and the reverse, are told which port it is."""
    sent = command("send", "orders", "x", "--producer", node.ready["consumer"])
    assert sent.code == ExitCode.CANNOT_CONNECT
    assert "this is the consumer port" in sent.err
    assert "--producer host:port" in sent.err
    pulled = command("pull", "billing", "--consumer", node.ready["producer"])
    assert pulled.code == ExitCode.CANNOT_CONNECT
    assert "this is the producer port" in pulled.err
