"""`pyddmq messages`: stored messages shown, queried and exported, from a running node or from a data directory."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from msgspec import to_builtins
from msgspec.structs import replace

from broker.runtime.steps import run_now
from proxy.cli.admin_client import get, given
from proxy.cli.errors import CliError
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import check_reader, print_json, print_line, print_table, progress, writing
from proxy.cli.store.store_files import opened, query_errors
from proxy.operate.moments import moment_text
from proxy.operate.text import amount, printable
from proxy.operate.views.messages import MessagesAnswer, MessageView
from proxy.process.exit_codes import ExitCode

Lookup = Callable[[dict[str, str]], MessagesAnswer]
"""Answers the parameters of /api/messages."""

DataFolder = Annotated[
    Path | None,
    typer.Option(
        "--data",
        metavar="DIR",
        help="Read this data directory instead of a node. Nothing is changed.",
        readable=False,
    ),
]
Topic = Annotated[str | None, typer.Option("--topic", "-t", help="Topic.")]
Queue = Annotated[int | None, typer.Option("--queue", "-q", min=0, help="Queue of the topic.")]
From = Annotated[str | None, typer.Option("--from", help="Stored at or after: 2026-11-21T10:00:00Z, ms, 10m ago.")]
FromOffset = Annotated[int | None, typer.Option("--offset", "-o", min=0, help="Start at this offset of the queue.")]
To = Annotated[str | None, typer.Option("--to", help="Stored before; same forms as --from.")]

_PAGE = 500
_STDOUT = "the output"
_LINE_CHARS = 60
_TAIL_SECONDS = 1.0
_PATIENCE_SECONDS = 120.0
"""A search may have to index much of the log before it answers."""


def show(
    *,
    message_id: Annotated[
        str | None,
        typer.Argument(
            metavar="ID", help="offsetMsgId, or an id from the producer: UNIQ_KEY, timer handle or DDMQ's id."
        ),
    ] = None,
    topic: Topic = None,
    queue: Queue = None,
    offset: Annotated[int | None, typer.Option("--offset", "-o", min=0, help="Offset in the queue.")] = None,
    unique_key: Annotated[str | None, typer.Option("--unique-key", help="UNIQ_KEY.")] = None,
    raw: Annotated[bool, typer.Option("--raw", help="Write only the body, unchanged.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", help="With --raw: write to this file.", readable=False)
    ] = None,
    data: DataFolder = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show one message with hosts, times, flags, properties and body."""
    parameters = {"id": message_id, "uniqKey": unique_key, "topic": topic, "queue": queue, "offset": offset}
    if sum(way is not None for way in (message_id, unique_key, offset)) != 1:
        raise CliError("select one message: an ID, --unique-key, or --topic, --queue and --offset", ExitCode.USAGE)
    if offset is not None and (topic is None or queue is None):
        raise CliError("--offset needs --topic and --queue", ExitCode.USAGE)
    with _queries(admin, data) as lookup:
        answer = lookup({**given(parameters), "body": "whole"})
        while not answer.messages and answer.cursor is not None:
            # By an id in Kafka, where the log is searched.
            answer = lookup({**given(parameters), "body": "whole", "cursor": str(answer.cursor)})
    messages = answer.messages
    if not messages:
        raise CliError(f"no message of topic {topic} has the id {message_id or unique_key}", ExitCode.NOT_FOUND)
    if raw:
        _write_raw(messages[0], output)
    elif as_json:
        for message in messages:
            print_json(message)
    else:
        for message in messages:
            _print_message(message)
    return ExitCode.OK


def query(
    *,
    topic: Annotated[str, typer.Argument(help="Topic.")],
    key: Annotated[str | None, typer.Option("--key", "-k", help="Message key (one word of it), or unique key.")] = None,
    text: Annotated[str | None, typer.Option("--text", help="Text in the body, the key or a property.")] = None,
    queue: Queue = None,
    offset: FromOffset = None,
    begin: From = None,
    end: To = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="Maximum number of messages.")] = 20,
    data: DataFolder = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List messages: with a key the newest that have it, else those of a range, the oldest first.

    With --text, and with --key on a topic in Kafka, the range is searched to its end, or until --limit are found.
    """
    parameters = given(
        {"topic": topic, "key": key, "text": text, "queue": queue, "offset": offset, "from": begin, "to": end}
    )
    with _queries(admin, data) as lookup:
        answer = _searched(lookup, parameters, limit, quiet=as_json)
    if as_json:
        for message in answer.messages:
            print_json(message)
    else:
        _print_list(topic, answer)
    _warn(answer)
    return ExitCode.OK


def _searched(lookup: Lookup, parameters: dict[str, str], limit: int, *, quiet: bool) -> MessagesAnswer:
    """Return what is found, request after request where the log is searched."""
    answer = lookup({**parameters, "limit": str(limit)})
    if "text" not in parameters and not (answer.share and "key" in parameters):
        return answer
    found, damaged = list(answer.messages), answer.damaged
    with progress(f"searching {parameters['topic']}", 100, unit="%", enabled=not quiet) as advance:
        while answer.cursor is not None and len(found) < limit:
            # What `ago` means must not move from request to request.
            parameters.update(_fixed(parameters, answer.now_ms))
            answer = lookup({**parameters, "cursor": str(answer.cursor), "limit": str(limit - len(found))})
            found += answer.messages
            damaged += answer.damaged
            share = answer.share or int(answer.cursor or answer.log_end) / max(1, answer.log_end)
            advance(int(share * 100))
    return replace(answer, messages=found, damaged=damaged)


def tail(
    *,
    topic: Annotated[str, typer.Argument(help="Topic.")],
    text: Annotated[
        str | None, typer.Option("--text", help="Only messages with this text in body or properties.")
    ] = None,
    queue: Queue = None,
    count: Annotated[
        int | None, typer.Option("--count", "-n", min=1, help="Stop after this number of messages.")
    ] = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Print messages as they are stored, until Ctrl-C; no group is involved."""
    from proxy.operate.lookups.messages import TAIL

    parameters = given({"topic": topic, "text": text, "queue": queue})
    cursor, shown = TAIL, 0
    with _queries(admin, None) as lookup:
        while True:
            limit = _PAGE if count is None else min(_PAGE, count - shown)
            answer = lookup({**parameters, "cursor": cursor, "limit": str(limit)})
            for message in answer.messages:
                if as_json:
                    print_json(message)
                else:
                    print_line(printable("  ".join(_row(message))))
            shown += len(answer.messages)
            if shown == count:
                return ExitCode.OK
            if cursor != TAIL and (answer.cursor is None or answer.share == 1):
                check_reader()
                time.sleep(_TAIL_SECONDS)
            behind = answer.messages[-1].physical + 1 if answer.messages else 0
            cursor = str(max(answer.log_end, behind) if answer.cursor is None else answer.cursor)


def export(
    *,
    topic: Annotated[str, typer.Argument(help="Topic.")],
    queue: Queue = None,
    offset: FromOffset = None,
    begin: From = None,
    end: To = None,
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="Maximum number of messages.")] = None,
    cursor: Annotated[
        str | None, typer.Option(help="Start at this commit-log offset; in Kafka at PARTITION:OFFSET.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-O", help="Write to this file instead of stdout.", readable=False)
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue after the last complete line of --output.")
    ] = False,
    data: DataFolder = None,
    admin: AdminAddress = ADMIN_DEFAULT,
) -> int:
    """Write messages as JSON lines, whole, in the order of the log; `pyddmq send --exported` sends them again."""
    if resume and output is None:
        raise CliError("--resume needs --output FILE", ExitCode.USAGE)
    parameters = given({"topic": topic, "queue": queue, "offset": offset, "from": begin, "to": end})
    count = damaged = exported = 0
    with contextlib.ExitStack() as stack:
        lookup = stack.enter_context(_queries(admin, data))
        target, done = _target(output, resume=resume, stack=stack)
        at = done or cursor
        advance = None
        first = 0
        while limit is None or count < limit:
            page = _PAGE if limit is None else min(_PAGE, limit - count)
            answer = lookup(
                {**parameters, "body": "whole", **({} if at is None else {"cursor": at}), "limit": str(page)}
            )
            # What `ago` means must not move from page to page.
            parameters.update(_fixed(parameters, answer.now_ms))
            damaged += answer.damaged
            messages = answer.messages
            if messages and advance is None:
                first = messages[0].physical
                total = None if answer.share else answer.log_end - first
                shown = progress(f"exporting {topic}", total, unit="bytes", enabled=output is not None)
                advance = stack.enter_context(shown)
            for message in messages:
                # What is larger than a page holds comes whole by itself.
                whole = lookup(_alone(message)).messages[0] if message.body_cut else message
                with writing(output or _STDOUT):
                    target.write(_line(whole))
            count += len(messages)
            if messages and advance is not None:
                exported += sum(each.bytes for each in messages)
                advance(exported if messages[-1].cluster else messages[-1].physical + messages[-1].bytes - first)
            if answer.cursor is None:
                break
            at = str(answer.cursor)
        with writing(output or _STDOUT):
            target.flush()
            if output is not None:
                os.fsync(target.fileno())
    if output is not None:
        print_line(f"{amount(count, 'message')} of {topic} written to {output}")
    if damaged:
        _say(f"left out: {amount(damaged, 'damaged record')}; `pyddmq store check` lists them")
    return ExitCode.OK


# Where answers come from


@contextlib.contextmanager
def _queries(admin: str, data: Path | None) -> Iterator[Lookup]:
    """Return what answers: the admin port, or the files of a data directory."""
    if data is None:
        yield lambda parameters: get(
            admin, "/api/messages", MessagesAnswer, parameters=parameters, timeout_seconds=_PATIENCE_SECONDS
        )
        return
    from broker.runtime.seams import SystemClock
    from proxy.operate.lookups.messages import MessageSearch

    clock = SystemClock()
    with opened(data, as_json=True) as store:

        def lookup(parameters: dict[str, str]) -> MessagesAnswer:
            with query_errors():
                return run_now(MessageSearch(store, parameters, now_ms=clock.wall_ms()).steps())

        yield lookup


def _alone(message: MessageView) -> dict[str, str]:
    """Return what asks for one message with its whole body."""
    if not message.cluster:
        return {"physical": str(message.physical), "body": "whole"}
    place = {"queue": str(message.queue), "offset": str(message.offset)}
    return {"topic": message.topic, **place, "body": "whole"}


def _fixed(parameters: dict[str, str], now_ms: int) -> dict[str, str]:
    from proxy.operate.moments import parse_moment

    return {name: str(parse_moment(parameters[name], now_ms)) for name in ("from", "to") if name in parameters}


# What is printed


def _print_message(message: MessageView) -> None:
    if message.cluster:
        origin = [f"stored {moment_text(message.store_ms)} in Kafka cluster {message.cluster}"]
    else:
        origin = [
            f"stored {moment_text(message.store_ms)} at {message.store_host}, commit-log offset {message.physical}, "
            f"{amount(message.bytes, 'byte')}",
            f"born {moment_text(message.born_ms)} at {message.born_host}",
            f"sysFlag {message.sys_flag}  flag {message.flag}  redelivered {message.reconsume_times}"
            + (f"  replaces the record at {message.prepared_offset}" if message.prepared_offset else ""),
        ]
    lines = [
        f"topic {message.topic}  queue {message.queue}  offset {message.offset}",
        f"id {message.id or '-'}  unique key {message.unique_key or '-'}",
        f"key {message.key or '-'}  tag {message.tag or '-'}",
        *origin,
        "properties",
        *(f"  {name} = {value}" for name, value in message.properties.items()),
    ]
    for line in lines:
        print_line(printable(line))
    if message.body_problem:
        print_line(printable(f"the body cannot be decompressed: {message.body_problem}"))
    if message.body_encoding == "utf-8":
        print_line(f"body, {amount(message.body_bytes, 'byte')}")
        for line in message.body.split("\n"):
            print_line(f"  {printable(line)}")
    else:
        print_line(f"body, {amount(message.body_bytes, 'byte')}, in hex")
        raw = base64.b64decode(message.body)
        for at in range(0, len(raw), 32):
            print_line(f"  {raw[at : at + 32].hex(' ', 4)}")
    if message.body_cut:
        print_line("  (cut)")


def _row(message: MessageView) -> list[str]:
    return [
        str(message.queue),
        str(message.offset),
        moment_text(message.store_ms),
        message.key or "",
        message.tag or "",
        message.unique_key,
        str(message.body_bytes),
        message.body[:_LINE_CHARS] if message.body_encoding == "utf-8" else "(binary)",
    ]


def _print_list(topic: str, answer: MessagesAnswer) -> None:
    columns = ["queue", "offset", "stored", "key", "tag", "unique key", "bytes", "body"]
    print_table(f"Messages of {topic}", columns, [_row(each) for each in answer.messages], right=(0, 1, 6))
    if answer.cursor is not None:
        print_line("there are more; --limit shows up to 1000, `pyddmq messages export` exports all")


def _warn(answer: MessagesAnswer) -> None:
    if answer.unsearched_bytes:
        missed = answer.unsearched_bytes
        _say(f"not indexed and not searched: {amount(missed, 'byte')} of the log; messages may be missing")
    if answer.damaged:
        _say(f"left out: {amount(answer.damaged, 'damaged record')}; `pyddmq store check` lists them")


def _say(text: str) -> None:
    sys.stderr.write(f"pyddmq: {text}\n")


# What is written


def _write_raw(message: MessageView, output: Path | None) -> None:
    text = message.body
    body = text.encode() if message.body_encoding == "utf-8" else base64.b64decode(text)
    with writing(output or _STDOUT):
        if output is not None:
            with open(output, "wb", opener=_owners) as stream:
                stream.write(body)
            return
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()


def _target(output: Path | None, *, resume: bool, stack: contextlib.ExitStack) -> tuple[BinaryIO, str]:
    """Open what is written to; returns it and the cursor to continue from, "" for the beginning."""
    if output is None:
        return sys.stdout.buffer, ""
    with writing(output):
        try:
            if not (resume and output.exists()):
                return stack.enter_context(_closing(open(output, "xb", opener=_owners), output)), ""
            stream = stack.enter_context(_closing(output.open("r+b"), output))
            return stream, _resume(stream, output)
        except FileExistsError as error:
            text = f"{output} already exists; continue it with --resume, or pass another file"
            raise CliError(text, ExitCode.USAGE) from error


@contextlib.contextmanager
def _closing(stream: BinaryIO, output: Path) -> Iterator[BinaryIO]:
    """Close it at the end, which writes what is left, and fails where the writes before have failed."""
    try:
        yield stream
    finally:
        with writing(output):
            stream.close()


def _owners(path: str, flags: int) -> int:
    """Open a file that, where it is made, is its owner's alone: it gets what people sent."""
    return os.open(path, flags, 0o600)


def _resume(stream: BinaryIO, output: Path) -> str:
    """Cut a line that is not whole off the end; returns the cursor behind the last message written."""
    whole = 0
    last = b""
    for line in stream:
        if not line.endswith(b"\n"):
            break
        whole += len(line)
        last = line
    stream.truncate(whole)
    stream.seek(whole)
    if not last:
        return ""
    try:
        message = json.loads(last)
        if "cluster" in message:
            return f"{int(message['queue'])}:{int(message['offset']) + 1}"
        return str(int(message["physical"]) + 1)
    except (ValueError, KeyError, TypeError) as error:
        text = f"the last line of {output} is not an exported message; pass a file written by `pyddmq messages export`"
        raise CliError(text, ExitCode.USAGE) from error


def _line(message: MessageView) -> bytes:
    return json.dumps(to_builtins(message), ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"
