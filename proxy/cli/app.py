"""The commands of `pyddmq`, put together, and how each of them ends."""

from __future__ import annotations

import errno
import functools
import inspect
import math
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.core

from proxy.cli.commands import serve_command
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson, TokenFile
from proxy.cli.output import open_streams, print_error, print_json, print_line
from proxy.cli.tls_options import TlsCa, TlsCertificate, TlsKey, TlsName, choose
from proxy.cli.token_option import choose_token_file
from proxy.operate.text import printable
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from proxy.cli.command_table import Folder


# Commands and options that the version before had: each is refused with a sentence that names its replacement.

REMOVED: Mapping[tuple[str, ...], str] = MappingProxyType(
    {
        ("demo", "delay"): "run examples/delayed_messages.py",
        ("demo", "order"): "run examples/order_by_key.py",
        ("demo", "push"): "run examples/push_receiver.py",
        ("demo", "transaction"): "run examples/transaction_producer.py",
        ("demo", "--upstream"): "run examples/kafka_two_nodes.py",
        ("demo", "--kafka"): "run examples/kafka_two_nodes.py",
        ("lag", "alarms"): "run `pyddmq lag`, and route verdicts by Prometheus (deploy/prometheus) or `lag.webhook`,",
        ("lag", "mute"): "set a silence in Alertmanager (deploy/prometheus)",
        **dict.fromkeys(
            (("lag", "watch", f"--{name}") for name in ("file", "topic", "node", "webhook")),
            "write changes to a Spark sink by --format and --option",
        ),
        ("lag", "watch", "--mute"): "set a silence in Alertmanager (deploy/prometheus)",
        ("lag", "--mode"): "set `delayTimeThreshold` and `committedLagThreshold` of the subscription",
    }
)
"""By the words of the command, or a command and an option anywhere behind it: what to do instead."""

_BEFORE_COMMANDS = ("--tls-", "--token-file")
"""Options that precede a command, each with a value."""


def refusal(arguments: Sequence[str]) -> str | None:
    """Return why a command line is refused, or None when it has nothing that was removed."""
    words = list(arguments[: arguments.index("--")] if "--" in arguments else arguments)
    while words and words[0].startswith(_BEFORE_COMMANDS):
        del words[: 1 if "=" in words[0] else 2]
    for removed, instead in REMOVED.items():
        *command, last = removed
        behind = words[len(command) :]
        found = last in {word.partition("=")[0] for word in behind} if last.startswith("-") else behind[:1] == [last]
        if words[: len(command)] == command and found:
            return f"`pyddmq {' '.join(removed)}` was removed; {instead} instead"
    return None


_ANY_BYTES = ("body", "data")
"""Arguments that are no text: a message, and the path that is handed on as a string."""

_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
"""UsageError, which typer does not name: click's, or that of the copy that newer versions bring along."""

HELP = "A DDMQ-style consumer proxy with an embedded, RocketMQ-like broker. Start a node with `pyddmq serve`."


def run(arguments: Sequence[str], *, leave: Callable[[int], object] | None = None) -> int:
    """Run one command line.

    Args:
        arguments: What follows the command's name.
        leave: Ends the process at once, with an exit code; None where the process has other work.

    Returns:
        An exit code of `ExitCode`.
    """
    if not open_streams():
        sys.stderr.write("pyddmq: stdout is closed; redirect it to a file or /dev/null\n")
        return ExitCode.USAGE
    as_json = _wants_json(arguments)
    if (removed := refusal(arguments)) is not None:
        print_error(removed, code=ExitCode.USAGE, as_json=as_json)
        return ExitCode.USAGE
    try:
        app = build(arguments[0] if arguments else None)
        code = app(args=list(arguments), prog_name="pyddmq", standalone_mode=not as_json, obj=leave)
    except SystemExit as end:
        if isinstance(end.__context__, OSError) and end.__context__.errno == errno.EPIPE:
            # Of the help: it was read.
            _drop_output()
            return ExitCode.OUTPUT_CLOSED
        return end.code if isinstance(end.code, int) else ExitCode.OK if end.code is None else ExitCode.CHECK_FAILED
    except _USAGE_ERROR as error:
        print_error(_wrong_line(error), code=ExitCode.USAGE, as_json=True)
        return ExitCode.USAGE
    return code if isinstance(code, int) else ExitCode.OK


def _wants_json(arguments: Sequence[str]) -> bool:
    """Whether errors are to be JSON, also where the line is wrong, so that no option of it has been read."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


def _wrong_line(error: Any) -> str:
    """Return a UsageError in one sentence, with the command that shows the right way."""
    command = "pyddmq" if error.ctx is None else error.ctx.command_path
    return f"{error.format_message().rstrip('.')}; `{command} --help` lists the options"


def _print_version(parameters: bool) -> None:
    if parameters:
        raise typer.Exit(version())


def build(word: str | None = None) -> typer.Typer:
    """Put the commands together.

    Args:
        word: The first one of the command line. Where it is a command, no other is made, but for `serve` and `version`:
            all of them take longer than most commands.
    """
    app = typer.Typer(
        name="pyddmq",
        help=HELP,
        cls=_PlainGroup,
        no_args_is_help=True,
        # An operating error is a sentence; what is left over is a bug, and its plain traceback is what a report needs.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_main)
    # `serve` has its own way with signals: it drains.
    app.command("serve", cls=_PlainCommand)(_ending(serve_command.serve))
    if word == "serve":
        _add(app, {"version": version})
        return app
    from proxy.cli.command_table import COMMANDS, FOLDERS

    every = {**COMMANDS, "version": version}
    alone = word in every or word in {folder.name for folder in FOLDERS}
    _add(app, {name: command for name, command in every.items() if not alone or name in (word, "version")})
    for folder in (folder for folder in FOLDERS if not alone or folder.name == word):
        _add_folder(app, folder)
    return app


def _add_folder(app: typer.Typer, folder: Folder) -> None:
    below = typer.Typer(help=folder.help, cls=_meaning(folder.meant), no_args_is_help=folder.meant is None)
    _add(below, folder.commands)
    for each in folder.folders:
        _add_folder(below, each)
    app.add_typer(below, name=folder.name)


def _main(
    *,
    show_version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    tls_ca: TlsCa = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_name: TlsName = None,
    token_file: TokenFile = None,
) -> None:
    choose_token_file(token_file)
    choose(ca=tls_ca, certificate=tls_certificate, key=tls_key, server_name=tls_name)


def _add(app: typer.Typer, commands: Mapping[str, Callable[..., int]]) -> None:
    for name, command in commands.items():
        text = _one_line_each(inspect.getdoc(command) or "")
        app.command(name, cls=_PlainCommand, help=text)(_ending(_on_sigterm(command)))


def _one_line_each(text: str) -> str:
    """Join the lines of each paragraph: typer keeps line ends of all but the first."""
    return "\n\n".join(" ".join(each.split()) for each in text.split("\n\n"))


_PLACEHOLDERS = {"int": "N", "float": "N", "path": "PATH", "Path": "PATH"}


class _PlainArgument(typer.core.TyperArgument):
    def display_type_rich(self, ctx: Any) -> str:
        return ""

    def _usage_display_name(self) -> str:
        name = self.metavar or ""
        return name if self.required else f"[{name.removesuffix('...')}]{'...' * name.endswith('...')}"


def with_placeholders(params: list[Any]) -> list[Any]:
    """Show a placeholder for each value, where typer shows Python types; flags have none, choices show themselves."""
    for each in params:
        if getattr(each, "is_flag", False):
            each.metavar = ""
        elif isinstance(each, typer.core.TyperArgument):
            stem = (each.metavar or each.name.upper()).removesuffix("...")
            each.metavar = stem if each.nargs == 1 else f"{stem}..."
            each.__class__ = _PlainArgument
        elif each.metavar is None and not each.type_descriptor.is_choice:
            words = str(each.type_descriptor.annotation)
            each.metavar = next((name for kind, name in _PLACEHOLDERS.items() if kind in words), "TEXT")
    return params


class _PlainCommand(typer.core.TyperCommand):
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        return with_placeholders(super().get_params(ctx))


class _PlainGroup(typer.core.TyperGroup):
    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        return with_placeholders(super().get_params(ctx))


def _meaning(meant: str | None) -> type[_PlainGroup]:
    """Make a group of commands of which one is meant when none is named: what follows is its arguments then."""
    if meant is None:
        return _PlainGroup
    chosen = [meant]

    class DefaultCommandGroup(_PlainGroup):
        def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
            # A shell that completes asks for names, and means none yet.
            is_meant = not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names)
            if is_meant and not ctx.resilient_parsing:
                args = [*chosen, *args]
            return super().parse_args(ctx, args)

    return DefaultCommandGroup


def version(*, as_json: AsJson = False) -> int:
    """Print the version."""
    from pyddmq.version import product_version

    number = product_version()
    if as_json:
        return print_json({"version": number})
    return print_line(f"pyddmq {number}")


def _ending(command: Callable[..., int]) -> Callable[..., None]:
    """Wrap a command so that its return value, an operating error or Ctrl-C becomes the exit code."""

    @functools.wraps(command)
    def ended(**options: Any) -> None:
        try:
            _check_values(options)
            code = command(**options)
        except CliError as error:
            print_error(error.text, code=error.code, as_json=bool(options.get("as_json")))
            code = error.code
        except KeyboardInterrupt:
            code = ExitCode.INTERRUPTED
        except BrokenPipeError:
            code = ExitCode.OUTPUT_CLOSED
        _drop_output()
        raise typer.Exit(int(code))

    return ended


def _check_values(options: Mapping[str, Any]) -> None:
    """Refuse arguments that are not UTF-8, and `nan` and `inf`; only paths and a message's body may be any bytes.

    Raises:
        CliError: Names the argument.
    """
    for name, value in options.items():
        if name in _ANY_BYTES:
            continue
        if isinstance(value, float) and not math.isfinite(value):
            raise CliError(f"--{name.replace('_', '-')} is {value}; pass a number", ExitCode.USAGE)
        for text in value if isinstance(value, list | tuple) else (value,):
            try:
                if isinstance(text, str):
                    text.encode()
            except UnicodeEncodeError as error:
                said = f"the argument `{printable(text):.80}` is not valid UTF-8; encode it as UTF-8"
                raise CliError(said, ExitCode.USAGE) from error


def _drop_output() -> None:
    """Let go what the streams could not take, so that the interpreter's own flush at its end does not fail again."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _on_sigterm(command: Callable[..., int]) -> Callable[..., int]:
    """Let SIGTERM unwind a command, so that a consumer still submits its results."""

    @functools.wraps(command)
    def terminable(**options: Any) -> int:
        def terminate(_number: int, _frame: object) -> None:
            raise SystemExit(int(ExitCode.TERMINATED))

        before = signal.signal(signal.SIGTERM, terminate)
        try:
            return command(**options)
        finally:
            signal.signal(signal.SIGTERM, before)

    return terminable
