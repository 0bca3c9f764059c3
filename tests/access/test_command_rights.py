"""Each command by what it asks a node for: the table of rights, its documentation, and the routes are one."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from proxy.access.rules import Permission
from proxy.admin.entry.rights import BODIES, READING, Need
from proxy.cli import admin_client
from proxy.cli.app import run
from proxy.cli.command_rights import RIGHTS
from proxy.cli.command_table import COMMANDS, FOLDERS, Folder
from proxy.cli.errors import CliError
from proxy.process.exit_codes import ExitCode
from tests.access.test_admin_gate import CHANGES, RELOAD

ROOT = Path(__file__).resolve().parents[2]
PLACE = "--topic orders --queue 0 --offset 1"
ADMIN_RIGHTS = frozenset({Permission.VIEW, Permission.OPERATE, Permission.READ_BODIES, Permission.ADMINISTER})
SAMPLES: dict[str, tuple[str, ...]] = {
    "pull": ("pull billing --dead-letters",),
    "limits": ("limits",),
    "stats": ("stats",),
    "reload": ("reload",),
    "groups show": ("groups", "groups show billing"),
    "groups stuck": ("groups stuck",),
    "groups retry": (f"groups retry billing {PLACE}", "groups retry billing --key k"),
    "groups skip": (f"groups skip billing {PLACE}", "groups skip billing --key k"),
    "groups dead-letter": (f"groups dead-letter billing {PLACE}", "groups dead-letter billing --key k"),
    "groups pause": ("groups pause billing",),
    "groups resume": ("groups resume billing",),
    "lag show": ("lag", "lag show billing --trend 1h"),
    "lag check": ("lag check",),
    "lag slo": ("lag slo --objective 60s",),
    "topics show": ("topics", "topics show orders"),
    "topics create": ("topics create orders",),
    "topics alter": ("topics alter orders --queues 9",),
    "topics delete": ("topics delete orders --yes orders", "topics delete orders"),
    "offsets show": ("offsets show",),
    "offsets reset": ("offsets reset billing --topic orders --latest",),
    "delays list": ("delays list",),
    "delays show": ("delays show",),
    "delays cancel": ("delays cancel 7F00", "delays cancel --topic orders"),
    "dlq list": ("dlq list",),
    "dlq show": ("dlq show billing",),
    "dlq stats": ("dlq stats billing",),
    "dlq redrive": ("dlq redrive billing --all",),
    "transactions list": ("transactions list",),
    "transactions show": ("transactions show 7F00",),
    "transactions commit": ("transactions commit 7F00", "transactions commit --all"),
    "transactions rollback": ("transactions rollback 7F00", "transactions rollback --all"),
    "transactions resume": ("transactions resume 7F00", "transactions resume --all"),
    "transactions stats": ("transactions stats",),
    "timers list": ("timers list",),
    "timers show": ("timers show 7F00",),
    "timers cancel": ("timers cancel 7F00", "timers cancel --topic orders"),
    "timers reschedule": ("timers reschedule 7F00 --at 2100-01-01T00:00:00Z",),
    "timers pause": ("timers pause all",),
    "timers resume": ("timers resume all",),
    "timers stats": ("timers stats",),
    "messages show": ("messages show 7F00",),
    "messages query": ("messages query orders --key k",),
    "messages tail": ("messages tail orders --count 1",),
    "messages export": ("messages export orders",),
}
"""What asks the admin port, so that each of its requests is seen."""


def commands() -> Iterator[str]:
    """Every command, by its words."""

    def below(folder: Folder, words: str) -> Iterator[str]:
        yield from (f"{words} {name}" for name in folder.commands)
        for each in folder.folders:
            yield from below(each, f"{words} {each.name}")

    yield from ("serve", "version", *COMMANDS)
    for folder in FOLDERS:
        yield from below(folder, folder.name)


def right_of(method: str, path: str) -> Permission | None:
    """The right that a request needs."""
    path, _, query = path.partition("?")
    if method != "GET":
        [change] = [each for each in (*CHANGES, RELOAD) if (each.method, each.path) == (method, path)]
        return change.action
    need: Need = READING[path]
    return BODIES.action if path == "/api/messages" and "body=none" not in query else need.action


class Terminal(io.StringIO):
    """An input that says it is a terminal, at which nobody types."""

    def isatty(self) -> bool:
        return True


def asked_by(line: str, monkeypatch: pytest.MonkeyPatch) -> list[Permission | None]:
    """Run a command that is refused everything; returns the rights that its requests need."""
    rights: list[Permission | None] = []

    def refuse(method: str, address: str, path: str, *_: Any) -> NoReturn:
        rights.append(right_of(method, path))
        raise CliError("the node refused: no", ExitCode.REFUSED)

    monkeypatch.setattr(admin_client, "_request", refuse)
    monkeypatch.setattr(sys, "stdin", Terminal())
    assert run(line.split()) != ExitCode.OK
    return rights


def test_every_command_has_its_right() -> None:
    """Whoever adds a command says what it needs."""
    assert set(commands()) == RIGHTS.keys()


def test_commands_need_what_their_requests_need(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by having each ask; a command with another right in the table, or one request more, fails this."""
    asking = {name for name, rights in RIGHTS.items() if ADMIN_RIGHTS & set(rights) and not name.startswith("demo ")}
    assert asking == SAMPLES.keys()
    for name, lines in SAMPLES.items():
        seen = {right for line in lines for right in asked_by(line, monkeypatch)}
        assert seen == ADMIN_RIGHTS & set(RIGHTS[name]), (name, seen)
