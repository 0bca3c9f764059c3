"""The commands of `pyddmq`, put together, and how each of them ends."""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer
import typer.core

from proxy.cli import (
    config_command,
    delay_cancel_command,
    delay_commands,
    demo_command,
    demo_delay_command,
    demo_order_command,
    demo_transaction_command,
    dlq_commands,
    group_commands,
    messages_command,
    node_commands,
    offset_commands,
    pull_command,
    send_command,
    serve_command,
    store_backup_commands,
    store_check_command,
    store_command,
    store_read_commands,
    timer_cancel_command,
    timer_commands,
    topic_commands,
    transaction_commands,
)
from proxy.cli.codes import ExitCode
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import open_streams, print_error, print_json, print_line, printable

_ANY_BYTES = ("body", "data")
"""Arguments that are no text: a message, and the path that is handed on as a string."""

HELP = "A DDMQ-style consumer proxy with an embedded, RocketMQ-like broker. Start a node with `pyddmq serve`."


def run(arguments: Sequence[str]) -> int:
    """Run one command line.

    Args:
        arguments: What follows the command's name.

    Returns:
        An exit code of `ExitCode`.
    """
    if not open_streams():
        sys.stderr.write("pyddmq: stdout is closed; give the command somewhere to print, if only /dev/null\n")
        return ExitCode.USAGE
    try:
        build()(args=list(arguments), prog_name="pyddmq")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else ExitCode.OK if end.code is None else ExitCode.CHECK_FAILED
    return ExitCode.OK


def build() -> typer.Typer:
    """Put the commands together."""
    app = typer.Typer(
        name="pyddmq",
        help=HELP,
        no_args_is_help=True,
        add_completion=False,
        # An operating error is a sentence; what is left over is a bug, and its plain traceback is what a report needs.
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    config = typer.Typer(help="Look at configuration files.", no_args_is_help=True)
    app.add_typer(config, name="config")
    # `serve` has its own way with signals: it drains.
    app.command("serve")(_ending(serve_command.serve))
    for name, command in (
        ("send", send_command.send),
        ("pull", pull_command.pull),
        ("stats", node_commands.stats),
        ("version", version),
    ):
        app.command(name)(_ending(_on_sigterm(command)))
    config.command("check")(_ending(config_command.check))
    demos = typer.Typer(
        cls=DemoGroup, help="Show a running node at work, and check it; `demo [OPTIONS]` is short for `demo events`."
    )
    app.add_typer(demos, name="demo")
    of_demos: tuple[tuple[str, Callable[..., int]], ...] = (
        ("events", demo_command.events),
        ("delay", demo_delay_command.delay),
        ("order", demo_order_command.order),
        ("transaction", demo_transaction_command.transaction),
    )
    for name, action in of_demos:
        demos.command(name)(_ending(_on_sigterm(action)))
    groups = typer.Typer(
        cls=ShowingGroup, help="Look at consumer groups; `groups [GROUP]` is short for `groups show [GROUP]`."
    )
    app.add_typer(groups, name="groups")
    of_groups: tuple[tuple[str, Callable[..., int]], ...] = (
        ("show", node_commands.groups),
        ("stuck", group_commands.stuck),
        ("retry", group_commands.retry),
        ("skip", group_commands.skip),
        ("dead-letter", group_commands.dead_letter),
        ("pause", group_commands.pause),
        ("resume", group_commands.resume),
    )
    for name, action in of_groups:
        groups.command(name)(_ending(action))
    topics = typer.Typer(
        cls=ShowingGroup, help="Look at topics and change them; `topics [TOPIC]` is short for `topics show [TOPIC]`."
    )
    app.add_typer(topics, name="topics")
    of_topics: tuple[tuple[str, Callable[..., int]], ...] = (
        ("show", node_commands.topics),
        ("create", topic_commands.create),
        ("alter", topic_commands.alter),
        ("delete", topic_commands.delete),
    )
    for name, change in of_topics:
        topics.command(name)(_ending(change))
    offsets = typer.Typer(help="Look at the offsets of groups, and move them.", no_args_is_help=True)
    app.add_typer(offsets, name="offsets")
    offsets.command("show")(_ending(offset_commands.show))
    offsets.command("reset")(_ending(offset_commands.reset))
    delays = typer.Typer(help="Look at messages of the delay levels, and cancel them.", no_args_is_help=True)
    app.add_typer(delays, name="delays")
    of_delays: tuple[tuple[str, Callable[..., int]], ...] = (
        ("list", delay_commands.list_levels),
        ("show", delay_commands.show),
        ("cancel", delay_cancel_command.cancel),
    )
    for name, action in of_delays:
        delays.command(name)(_ending(_on_sigterm(action)))
    dead = typer.Typer(help="Look at dead letters, and send them again.", no_args_is_help=True)
    app.add_typer(dead, name="dlq")
    of_dead: tuple[tuple[str, Callable[..., int]], ...] = (
        ("list", dlq_commands.list_groups),
        ("show", dlq_commands.show),
        ("stats", dlq_commands.stats),
        ("redrive", dlq_commands.redrive),
    )
    for name, action in of_dead:
        dead.command(name)(_ending(_on_sigterm(action)))
    transactions = typer.Typer(help="Look at transactions, and decide them by hand.", no_args_is_help=True)
    app.add_typer(transactions, name="transactions")
    of_transactions: tuple[tuple[str, Callable[..., int]], ...] = (
        ("list", transaction_commands.list_transactions),
        ("show", transaction_commands.show),
        ("commit", transaction_commands.commit),
        ("rollback", transaction_commands.rollback),
        ("resume", transaction_commands.resume),
        ("stats", transaction_commands.stats),
    )
    for name, action in of_transactions:
        transactions.command(name)(_ending(_on_sigterm(action)))
    timers = typer.Typer(help="Look at messages that wait for their moment, and change them.", no_args_is_help=True)
    app.add_typer(timers, name="timers")
    of_timers: tuple[tuple[str, Callable[..., int]], ...] = (
        ("list", timer_commands.list_timers),
        ("show", timer_commands.show),
        ("cancel", timer_cancel_command.cancel),
        ("reschedule", timer_commands.reschedule),
        ("pause", timer_commands.pause),
        ("resume", timer_commands.resume),
        ("stats", timer_commands.stats),
    )
    for name, action in of_timers:
        timers.command(name)(_ending(_on_sigterm(action)))
    messages = typer.Typer(help="Look at stored messages.", no_args_is_help=True)
    app.add_typer(messages, name="messages")
    of_messages: tuple[tuple[str, Callable[..., int]], ...] = (
        ("show", messages_command.show),
        ("query", messages_command.query),
        ("export", messages_command.export),
    )
    for name, action in of_messages:
        messages.command(name)(_ending(_on_sigterm(action)))
    store = typer.Typer(help="Look at data directories.", no_args_is_help=True)
    app.add_typer(store, name="store")
    store.command("broker-conf")(_ending(store_command.broker_conf))
    readers: tuple[tuple[str, Callable[..., int]], ...] = (
        ("check", store_check_command.check),
        ("stat", store_read_commands.stat),
        ("dump", store_read_commands.dump),
        ("find", store_read_commands.find),
        ("backup", store_backup_commands.backup),
        ("restore", store_backup_commands.restore),
    )
    for name, reader in readers:
        store.command(name)(_ending(_on_sigterm(reader)))
    return app


class ShowingGroup(typer.core.TyperGroup):
    """Commands of which one is meant when none is named: what follows is its arguments then."""

    meant = "show"

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Put the command that is meant in front of arguments that name none."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self.meant, *args]
        return super().parse_args(ctx, args)


class DemoGroup(ShowingGroup):
    """The demos; that of events and their order is meant when none is named."""

    meant = "events"


def version(*, as_json: AsJson = False) -> int:
    """Print the version."""
    from importlib.metadata import version as installed_version

    number = installed_version("pyddmq")
    if as_json:
        print_json({"version": number})
    else:
        print_line(f"pyddmq {number}")
    return ExitCode.OK


def _ending(command: Callable[..., int]) -> Callable[..., None]:
    """Wrap a command so that its return value, an operating error or Ctrl-C becomes the exit code."""

    @functools.wraps(command)
    def ended(**options: Any) -> None:
        try:
            _check_texts(options)
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


def _check_texts(options: Mapping[str, Any]) -> None:
    """Refuse arguments that are not UTF-8; only paths and a message's body may be any bytes.

    Raises:
        CliError: Names the argument.
    """
    for name, value in options.items():
        if name in _ANY_BYTES:
            continue
        for text in value if isinstance(value, list | tuple) else (value,):
            if isinstance(text, str) and not _is_utf8(text):
                raise CliError(f"the argument `{printable(text):.80}` is not UTF-8; write it in UTF-8", ExitCode.USAGE)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
