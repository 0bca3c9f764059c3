"""`pyddmq pull`: take messages of a group, print them, and report them as done, failed or not at all."""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Annotated

import typer

from proxy.cli.admin_client import get
from proxy.cli.errors import CliError, translate
from proxy.cli.options import ADMIN_DEFAULT, CONSUMER_DEFAULT, AdminAddress, AsJson, ConsumerAddress, TokenFile
from proxy.cli.output import body_fields, check_reader, print_json, print_line
from proxy.cli.tls_options import tls_for
from proxy.cli.token_option import choose_token_file, chosen_token_file
from proxy.operate.text import printable
from proxy.operate.views.groups import GroupsAnswer
from proxy.process.exit_codes import ExitCode
from pyddmq import ClientError, ClientMisuse, Consumer, PulledMessage

DEAD_LETTER_PREFIX = "%DLQ%"

_LINGER_MS = 500
_BATCH_SIZE = 32
_PATIENCE_MS = 60_000
_ASK_SECONDS = 2.0
_SILENCE = ("paused", "queues_owned", "not_starting", "reading_stopped")
"""Findings that explain why a group gets nothing."""


def pull(
    *,
    group: Annotated[str, typer.Argument(help="Consumer group.")],
    topic: Annotated[str | None, typer.Option(help="Only this topic of the group.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-F", help="Keep waiting for new messages until Ctrl-C.")] = False,
    no_ack: Annotated[
        bool, typer.Option("--no-ack", help="Do not acknowledge; messages are redelivered later.")
    ] = False,
    fail: Annotated[bool, typer.Option("--fail", help="Report failure; messages are retried.")] = False,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this number of messages.")
    ] = None,
    wait_ms: Annotated[
        int, typer.Option(min=0, help="Without --follow: stop after this time without a message.")
    ] = 1000,
    dead_letters: Annotated[
        bool,
        typer.Option("--dead-letters", help="Pull the group's dead letters, as the group that subscribes to them."),
    ] = False,
    consumer: ConsumerAddress = CONSUMER_DEFAULT,
    token_file: TokenFile = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Pull messages, print them, and ack them.

    Every message counts as delivered to the group: with --no-ack and --fail it uses up its retries.
    """
    if no_ack and fail:
        raise CliError("--no-ack and --fail exclude each other", ExitCode.USAGE)
    token_file = token_file or chosen_token_file()
    choose_token_file(token_file)
    if dead_letters:
        if topic is not None:
            raise CliError("--dead-letters selects the topic; remove --topic", ExitCode.USAGE)
        topic = DEAD_LETTER_PREFIX + group
        group = _reader_of(topic, admin)
    result = "none" if no_ack else "fail" if fail else "ack"
    taken = 0
    try:
        with Consumer(consumer, group, topic, linger_ms=_LINGER_MS, token=token_file, tls=tls_for(consumer)) as client:
            client.connect()
            idle_left_ms = max(wait_ms, 1)
            reported = False
            while count is None or taken < count:
                if follow:
                    check_reader()
                batch = client.pull(
                    count_max=_BATCH_SIZE if count is None else min(_BATCH_SIZE, count - taken),
                    # Who follows wants to see a restart of the node through.
                    patience_ms=_PATIENCE_MS if follow else 0,
                )
                for message in batch:
                    with _unsignalled():
                        _print_message(message, result, as_json=as_json)
                        if result == "ack":
                            client.ack(message)
                        elif result == "fail":
                            client.fail(message, "rejected by `pyddmq pull --fail`")
                taken += len(batch)
                if not batch and not reported:
                    reported = True
                    _explain_silence(group, topic, admin)
                idle_left_ms = max(wait_ms, 1) if batch else idle_left_ms - _LINGER_MS
                if not follow and idle_left_ms <= 0:
                    break
    except (ClientError, ClientMisuse) as error:
        raise translate(error, option="--consumer") from error
    if not taken and not as_json:
        sys.stderr.write(f"pyddmq: no message arrived within {wait_ms} ms; --wait-ms waits longer\n")
    return ExitCode.OK


def _explain_silence(group: str, topic: str | None, admin: str) -> None:
    """Say on stderr that the group is paused, or does not start; nothing where no admin port answers."""
    try:
        parameters = {"limit": 0, "group": group}
        answer = get(admin, "/api/groups", GroupsAnswer, parameters=parameters, timeout_seconds=_ASK_SECONDS)
    except CliError:
        return
    for each in answer.findings:
        if each.finding in _SILENCE and each.group == group and topic in (None, each.topic):
            sys.stderr.write(f"pyddmq: {printable(each.text)}\n")


@contextlib.contextmanager
def _unsignalled() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back for the block: what is printed is reported, and what is not is not."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _print_message(message: PulledMessage, result: str, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": message.topic,
                "qid": message.qid,
                "offset": message.offset,
                "key": message.key,
                "tag": message.tag,
                **body_fields(message.body),
                "properties": dict(message.properties),
                "result": result,
            }
        )
        return
    parts = [message.topic, f"{message.qid}@{message.offset}"]
    if message.key is not None:
        parts.append(f"key={message.key}")
    if message.tag is not None:
        parts.append(f"tag={message.tag}")
    parts += [f"{name}={value}" for name, value in message.properties.items()]
    print_line("  ".join(printable(part) for part in [*parts, message.body.decode(errors="backslashreplace")]))


def _reader_of(topic: str, admin: str) -> str:
    """Find the group whose subscription reads a dead-letter topic."""
    groups = get(admin, "/api/groups?limit=10000", GroupsAnswer).groups
    for each in groups:
        if any(subscription.topic == topic for subscription in each.topics):
            return each.group
    origin = topic.removeprefix(DEAD_LETTER_PREFIX)
    if all(each.group != origin for each in groups):
        text = f"no group {origin!r} is configured on this node; `pyddmq groups` lists them"
        raise CliError(text, ExitCode.NOT_FOUND)
    raise CliError(
        f"no group subscribes to {topic}. Add one to the configuration, under groups: `- {{group: "
        f"{origin}-dead-letters, topics: [{{topic: '{topic}', actions: [PullServer]}}]}}`. Then reload the "
        "node (SIGHUP) and pull again",
        ExitCode.NOT_FOUND,
    )
