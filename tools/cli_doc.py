"""Makes docs/commands.md from the commands themselves: arguments, options, rights, exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer

from proxy.cli.app import build, with_placeholders
from proxy.cli.command_rights import FILES, RIGHTS
from proxy.process.exit_codes import ExitCode

_HEAD = """\
# Commands

Every command with its arguments and options, made from the code (`make docs`). `pyddmq COMMAND --help` prints the same.
[The command line](cli.md) explains addresses, tokens, output and `--data`.

*Needs* names the right that a command needs where the node has [rules](security.md#rules). *Files* means that it works
on files, with the permissions of the user who runs it.

## Exit codes

| code | meaning |
| --- | --- |
"""
_COMMON = ("help", "as_json", "admin", "producer", "consumer", "token_file")
"""Parameters of most commands; docs/cli.md explains them once."""


def render() -> str:
    """Return the page."""
    parts = [_HEAD, *(f"| {code.value} | {code.text} |\n" for code in ExitCode)]
    word = ""
    for path, command in _commands(typer.main.get_command(build()), ()):
        if path[0] != word:
            word = path[0]
            parts.append(f"\n## {word}\n")
        parts.append(_section(path, command))
    return "".join(parts)


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield path, command
        return
    for name, each in below.items():
        yield from _commands(each, (*path, name))


def _section(path: tuple[str, ...], command: Any) -> str:
    name = " ".join(path)
    own = [each for each in with_placeholders(command.params) if each.name not in _COMMON]
    arguments = [each for each in own if each.param_type_name == "argument"]
    shown = " ".join(each.metavar if each.required else f"[{each.metavar}]" for each in arguments)
    rights = RIGHTS[name]
    needs = "files" if FILES in rights else ", ".join(f"`{right}`" for right in rights if right) or "nothing"
    text = [f"\n### pyddmq {name} {shown}".rstrip(), "", command.help or "", "", f"Needs: {needs}."]
    if own:
        text += ["", "| | meaning | default |", "| --- | --- | --- |", *map(_row, own)]
    return "\n".join(text) + "\n"


def _row(parameter: Any) -> str:
    if parameter.param_type_name == "argument":
        name, default = f"`{parameter.metavar}`", ""
    else:
        value = "" if parameter.is_flag else f" {parameter.metavar or _choices(parameter)}"
        name = ", ".join(f"`{each}{value}`" for each in [*parameter.opts, *parameter.secondary_opts])
        default = _default(parameter.default)
    meaning = " ".join((parameter.help or "").split()).replace("|", "\\|")
    return f"| {name} | {meaning} | {default} |"


def _choices(parameter: Any) -> str:
    return "\\|".join(str(getattr(each, "value", each)) for each in parameter.type_descriptor.choices)


def _default(value: Any) -> str:
    return "" if callable(value) or value is None or value is False or value in ((), [], "") else f"`{value}`"
