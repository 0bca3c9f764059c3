"""One exit code for what is not there: of every command that takes a name or an id, by node and by data directory."""

from __future__ import annotations

import inspect
import json
import signal
from collections.abc import Iterator
from typing import Any, get_type_hints

import pytest

from proxy.cli.app import run
from proxy.cli.command_table import COMMANDS, FOLDERS
from proxy.process.exit_codes import ExitCode, code_of_all
from tests.acceptance.conftest import NodeProcess, StartNode

NOBODY = "nobody"
ID = "0" * 32
NOT_ABOUT_NAMES = {
    "topics create", "config check", "lag explain", "lag compact", "actions list", "actions try",
    "access explain", "tls dev",
}  # fmt: skip
"""Commands with an argument that may be new, is a file, or is asked of no node; those of `store` name
data directories, whose code is 6."""

OF_A_NODE: dict[str, list[list[str]]] = {
    "send": [[NOBODY, "x"]],
    "pull": [[NOBODY], ["billing", "--topic", NOBODY], [NOBODY, "--dead-letters"]],
    "groups show": [[NOBODY]],
    "groups stuck": [[NOBODY]],
    "groups retry": [[NOBODY, "--topic", "orders", "--queue", "0", "--offset", "0"], ["billing", "--key", NOBODY]],
    "groups skip": [["billing", "--topic", NOBODY, "--queue", "0", "--offset", "0"]],
    "groups dead-letter": [["billing", "--topic", "orders", "--queue", "99", "--offset", "0"]],
    "groups pause": [[NOBODY], ["billing", "--topic", NOBODY]],
    "groups resume": [[NOBODY]],
    "lag show": [[NOBODY]],
    "limits": [[NOBODY]],
    "topics show": [[NOBODY]],
    "topics alter": [[NOBODY, "--queues", "9"]],
    "topics delete": [[NOBODY, "--yes", NOBODY]],
    "offsets show": [[NOBODY]],
    "offsets reset": [[NOBODY, "--topic", "orders", "--earliest"], ["billing", "--topic", NOBODY, "--earliest"]],
    "delays show": [["99"]],
    "delays cancel": [[ID], [ID, NOBODY]],
    "dlq show": [[NOBODY]],
    "dlq stats": [[NOBODY]],
    "dlq redrive": [[NOBODY, "--all"], [NOBODY, "--id", ID]],
    "transactions show": [[ID]],
    "transactions commit": [[ID], [ID, NOBODY]],
    "transactions rollback": [[ID]],
    "transactions resume": [[ID]],
    "timers show": [[ID]],
    "timers cancel": [[ID], [ID, NOBODY]],
    "timers reschedule": [[ID, "--at", "in 1h"]],
    "timers pause": [[NOBODY]],
    "timers resume": [[NOBODY]],
    "messages show": [
        [ID],
        [NOBODY],
        ["--unique-key", ID],
        ["--topic", "orders", "--queue", "0", "--offset", "99"],
        ["--topic", "orders", "--queue", "99", "--offset", "0"],
    ],
    "messages query": [[NOBODY], ["orders", "--queue", "99"]],
    "messages tail": [[NOBODY]],
    "messages export": [[NOBODY]],
}
"""Command to arguments that name nothing."""

WITH_DATA = {
    "offsets show", "offsets reset", "delays show", "dlq show", "dlq stats", "transactions show", "timers show",
    "messages show", "messages query", "messages export",
}  # fmt: skip


def commands_with_arguments() -> Iterator[str]:
    """Names of the commands that take an argument."""
    everything = dict(COMMANDS)
    everything |= {f"{each.name} {name}": command for each in FOLDERS for name, command in each.commands.items()}
    for name, command in everything.items():
        hints = get_type_hints(command, include_extras=True)
        if any(
            type(extra).__name__ == "ArgumentInfo"
            for parameter in inspect.signature(command).parameters
            for extra in getattr(hints[parameter], "__metadata__", ())
        ):
            yield name


def test_table_has_every_command_that_takes_a_name() -> None:
    """A new command is listed above, with what it does of a name that nothing has."""
    named = {name for name in commands_with_arguments() if not name.startswith("store ")}
    assert named - NOT_ABOUT_NAMES == set(OF_A_NODE)


def ended(command: str, arguments: list[str], where: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[Any, ...]:
    """Run a command; return what it was, its exit code, and whether an error has the same code."""
    # What is exported is JSON as it is, without an option.
    code = run([*command.split(), *arguments, *where, *([] if command == "messages export" else ["--json"])])
    said = capsys.readouterr().err.splitlines()
    same = all(json.loads(line)["error"]["exitCode"] == code for line in said if line.startswith('{"error"'))
    return command, arguments, code, same


def addresses(node: NodeProcess, command: str) -> list[str]:
    """Options that name the node's ports."""
    options = {"send": node.producer(), "pull": [*node.consumer(), *node.admin()]}
    return options.get(command, node.admin())


def test_what_is_not_there_ends_with_11(node: NodeProcess, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever is named, of a node and then of its data directory."""
    tried = [(command, arguments) for command, each in OF_A_NODE.items() for arguments in each]
    wanted = [(command, arguments, ExitCode.NOT_FOUND, True) for command, arguments in tried]
    assert [ended(command, arguments, addresses(node, command), capsys) for command, arguments in tried] == wanted
    data = ["--data", node.ready["data"]]
    assert node.stop(signal.SIGTERM) == 0
    stopped = [(command, arguments) for command, arguments in tried if command in WITH_DATA]
    wanted = [(command, arguments, ExitCode.NOT_FOUND, True) for command, arguments in stopped]
    assert [ended(command, arguments, data, capsys) for command, arguments in stopped] == wanted


def test_what_is_there_and_refused_ends_with_5(start_node: StartNode, capsys: pytest.CaptureFixture[str]) -> None:
    """Too late is a refusal, alone or beside an id that nothing has; a question that makes no sense is one, too."""
    node = start_node()
    assert run(["send", "orders", "x", "--at", "in 2h", "--json", *node.producer()]) == ExitCode.OK
    first = json.loads(capsys.readouterr().out)["id"]
    reschedule = ["timers", "reschedule", first, "--at", "in 1h", *node.admin()]
    assert (run(reschedule), run(reschedule)) == (ExitCode.OK, ExitCode.REFUSED)
    for arguments in ([first], [first, ID], [ID, first]):
        assert run(["timers", "cancel", *arguments, *node.admin()]) == ExitCode.REFUSED, arguments
    assert run(["dlq", "redrive", "billing", "--from", "1h", "--until", "2h", *node.admin()]) == ExitCode.REFUSED
    assert code_of_all([]) == ExitCode.OK
