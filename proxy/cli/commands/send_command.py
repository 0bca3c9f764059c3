"""`pyddmq send`: publish messages from the command line, a file or stdin."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
import math
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from broker.format.properties import is_system_property
from broker.runtime.seams import Clock, SystemClock
from proxy.cli.errors import CliError, translate
from proxy.cli.input_lines import InputLine, batches_of, lines_of
from proxy.cli.moments import duration_option, moment_option
from proxy.cli.options import PRODUCER_DEFAULT, AsJson, ProducerAddress, TokenFile
from proxy.cli.output import print_json, print_line, progress
from proxy.cli.tls_options import tls_for
from proxy.cli.token_option import chosen_token_file
from proxy.operate.text import amount
from proxy.process.exit_codes import ExitCode
from pyddmq import ClientError, ClientMisuse, OutgoingMessage, Producer, SendReceipt

# `pyddmq send --every` and `--growth`: messages that are delivered again and again.


class Loop(NamedTuple):
    """How a message is repeated.

    Attributes:
        at_s: First delivery, seconds since the epoch.
        every: Seconds between two; None with growing gaps.
        growth: Base of growing gaps.
        times: Deliveries, None: as many as there are until `expire_s`.
        expire_s: No delivery after this.
    """

    at_s: int
    every: int | None
    growth: int | None
    times: int | None
    expire_s: float | None


def loop_options(
    like: OutgoingMessage,
    *,
    every: str | None,
    growth: int | None,
    times: int | None,
    expire: str | None,
    clock: Clock,
) -> Loop | None:
    """Return what the options ask for, None when no loop is asked for.

    Args:
        like: The message, with what other options say of it.
        every: Time span.
        growth: Base of growing gaps.
        times: Deliveries.
        expire: Moment.
        clock: What `now` means.

    Raises:
        CliError: Options that do not go together, or no moment or time span.
    """
    if every is None and growth is None:
        if times is not None or expire is not None:
            raise CliError("--times and --expire are for loops: add --every or --growth", ExitCode.USAGE)
        return None
    if every is not None and growth is not None:
        raise CliError("--every and --growth exclude each other", ExitCode.USAGE)
    if times is None and expire is None:
        raise CliError("a loop needs an end: give --times or --expire", ExitCode.USAGE)
    if like.key is not None or like.hash_id or like.partition_id != -1 or like.delay_level:
        text = (
            "a loop uses its id as key and selects its own queue: remove --key, --hash, --partition and --delay-level"
        )
        raise CliError(text, ExitCode.USAGE)
    gap = None if every is None else duration_option(every, option="--every")
    if gap is not None and gap % 1000:
        raise CliError(f"--every: {every} is not a whole number of seconds", ExitCode.USAGE)
    end_ms = None if expire is None else moment_option(expire, option="--expire", clock=clock, span_is_age=False)
    begin_ms = like.deliver_at_ms or clock.wall_ms() + like.delay_ms
    return Loop(
        at_s=math.ceil(begin_ms / 1000),
        every=None if gap is None else gap // 1000,
        growth=growth,
        times=times,
        expire_s=None if end_ms is None else end_ms / 1000,
    )


def send_loop(producer: Producer, loop: Loop, message: OutgoingMessage) -> str:
    """Send a message as a loop; returns its id.

    Raises:
        ClientError: It is not taken, or may not be.
    """
    return producer.send_delay(
        message.topic,
        message.body,
        at=loop.at_s,
        every=loop.every,
        growth=loop.growth,
        times=loop.times,
        expire=loop.expire_s,
        tags=message.tags,
        properties=message.properties,
    )


STDIN = "-"


def send(
    *,
    topic: Annotated[str, typer.Argument(help="Topic to publish to.")],
    body: Annotated[str | None, typer.Argument(help="The message; or use --file.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file", "-f", help="One message per line; `-` means stdin. Empty lines are skipped.", readable=False
        ),
    ] = None,
    exported: Annotated[
        bool, typer.Option("--exported", help="The lines are from `messages export`: body, key, tag and properties.")
    ] = False,
    key: Annotated[str | None, typer.Option(help="Message key; selects the queue.")] = None,
    tag: Annotated[str | None, typer.Option(help="Tag for subscription filters.")] = None,
    properties: Annotated[
        list[str] | None, typer.Option("--property", metavar="NAME=VALUE", help="User property; repeatable.")
    ] = None,
    hash_id: Annotated[int, typer.Option(help="Select the queue by this hash instead of the key; 0 means unset.")] = 0,
    partition: Annotated[int, typer.Option(help="Queue number; -1 means by hash or key, -2 random.")] = -1,
    delay_level: Annotated[int, typer.Option(min=0, help="Deliver after this delay level; 0 means immediately.")] = 0,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Deliver at this moment: ISO 8601, ms since 1970, or `in 90s`.")
    ] = None,
    delay: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Deliver after this time, such as 90s or 2h.")
    ] = None,
    every: Annotated[
        str | None, typer.Option(metavar="SPAN", help="Deliver repeatedly at this interval (a loop).")
    ] = None,
    growth: Annotated[
        int | None, typer.Option(min=2, help="A loop with gaps of N, N*N, ... seconds, one day at most.")
    ] = None,
    times: Annotated[int | None, typer.Option(min=1, help="Number of deliveries of a loop.")] = None,
    expire: Annotated[str | None, typer.Option(metavar="TIME", help="Stop the loop at this time.")] = None,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Messages per request, stored as one batch.")] = 100,
    timeout_ms: Annotated[int, typer.Option(min=1, max=86_400_000, help="Timeout for one request.")] = 5000,
    patience: Annotated[
        str,
        typer.Option(metavar="SPAN", help="How long to keep retrying if the node becomes unavailable."),
    ] = "10s",
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only errors and the number of messages.")] = False,
    producer: ProducerAddress = PRODUCER_DEFAULT,
    token_file: TokenFile = None,
    as_json: AsJson = False,
) -> int:
    """Publish messages and print queue, offset and id of each.

    The body is an argument, or each line of a file or of stdin (--file -, or a pipe) is one message.
    """
    if body == STDIN and file is None:
        body, file = None, Path(STDIN)
    if exported and body is not None:
        raise CliError("--exported needs --file or a pipe, not a message", ExitCode.USAGE)
    if exported and (key is not None or tag is not None or properties):
        raise CliError("--exported takes key, tag and properties from the lines; remove these options", ExitCode.USAGE)
    if bool(delay_level) + (at is not None) + (delay is not None) > 1:
        raise CliError("pass only one of --delay-level, --at and --delay", ExitCode.USAGE)
    reported = None if quiet else as_json
    make = exported_message if exported else plain_message
    like = OutgoingMessage(
        topic=topic,
        body=b"",
        key=key,
        tags=tag,
        properties=dict(pairs_of(properties or ())),
        hash_id=hash_id,
        partition_id=partition,
        delay_level=delay_level,
        deliver_at_ms=0 if at is None else moment_option(at, option="--at", clock=SystemClock(), span_is_age=False),
        delay_ms=0 if delay is None else duration_option(delay, option="--delay"),
    )
    loop = loop_options(like, every=every, growth=growth, times=times, expire=expire, clock=SystemClock())
    if loop is not None and exported:
        raise CliError("--exported does not send loops; remove the loop options", ExitCode.USAGE)
    patience_ms = duration_option(patience, option="--patience")
    try:
        with contextlib.ExitStack() as stack:
            lines, bytes_total = _input(body, file, stack)
            sender = stack.enter_context(
                Producer(
                    producer,
                    timeout_ms=timeout_ms,
                    patience_ms=patience_ms,
                    token=token_file or chosen_token_file(),
                    tls=tls_for(producer),
                )
            )
            sender.connect()
            advance = stack.enter_context(
                progress(
                    f"sending to {topic}", bytes_total, unit="bytes", enabled=body is None and not as_json and not quiet
                )
            )
            count = 0
            if loop is not None:
                for line in lines:
                    if line is not None:
                        _send_loop(sender, loop, make(like, line), line, sent_before=count, reported=reported)
                        count += 1
                lines = ()
            for group in batches_of(lines, batch):
                try:
                    messages = [make(like, line) for line in group]
                except CliError as error:
                    if not count:
                        raise
                    raise CliError(f"{error.text}. {_not_stored(count, group)}", error.code) from error
                _send_group(sender, messages, group, sent_before=count, reported=reported)
                count += len(group)
                advance(group[-1].bytes_read)
    except (ClientError, ClientMisuse) as error:
        raise translate(error, option="--producer") from error
    if as_json and quiet:
        print_json({"topic": topic, "sent": count})
    elif not as_json and (quiet or body is None):
        print_line(f"{amount(count, 'message')} sent to {topic}")
    return ExitCode.OK


def plain_message(like: OutgoingMessage, line: InputLine) -> OutgoingMessage:
    """Return the message of which a line is the body."""
    return dataclasses.replace(like, body=line.body)


def exported_message(like: OutgoingMessage, line: InputLine) -> OutgoingMessage:
    """Return the message that a line of `messages export` holds; what the broker adds itself is left out."""
    try:
        value = json.loads(line.body)
        text = value["body"]
        body = base64.b64decode(text, validate=True) if value["bodyEncoding"] == "base64" else text.encode()
        properties = {
            name: each for name, each in value["properties"].items() if not is_system_property(name.encode("utf-8"))
        }
        problem = value.get("bodyProblem") or ("its body was cut" if value["bodyCut"] else None)
        key, tag = value["key"], value["tag"]
        for each in (*properties.values(), *(given for given in (key, tag) if given is not None)):
            each.encode()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        text = f"line {line.number} is not an exported message; `pyddmq messages export` writes such lines"
        raise CliError(text, ExitCode.USAGE) from error
    if problem:
        raise CliError(f"line {line.number} cannot be sent again: {problem}", ExitCode.USAGE)
    return dataclasses.replace(like, body=body, key=key, tags=tag, properties=properties)


def _send_group(
    producer: Producer,
    messages: list[OutgoingMessage],
    lines: list[InputLine],
    *,
    sent_before: int,
    reported: bool | None,
) -> None:
    """Send one batch and print its receipts, as JSON or not (`told`); None prints none."""
    try:
        receipts = producer.send_batch(messages)
    except ClientError as error:
        raise verdict(error, sent_before=sent_before, lines=lines) from error
    for receipt in receipts if reported is not None else ():
        _print_receipt(messages[0].topic, receipt, as_json=bool(reported))


def _send_loop(
    producer: Producer,
    loop: Loop,
    message: OutgoingMessage,
    line: InputLine,
    *,
    sent_before: int,
    reported: bool | None,
) -> None:
    """Send one loop and print its id; `told` as above."""
    try:
        delay_id = send_loop(producer, loop, message)
    except ClientError as error:
        raise verdict(error, sent_before=sent_before, lines=[line]) from error
    if reported:
        print_json({"topic": message.topic, "delayId": delay_id})
    elif reported is not None:
        print_line(f"{message.topic}  loop  id {delay_id}")


def verdict(error: ClientError, *, sent_before: int, lines: Sequence[InputLine]) -> CliError:
    """Return what becomes of an input that was sent up to some lines and failed there.

    Args:
        error: Of these lines.
        sent_before: Messages that are stored.
        lines: May be stored or not, all or none; what is behind them was not sent.
    """
    reported = translate(error, option="--producer")
    if not sent_before and not error.undecided:
        return reported
    if not error.undecided:
        return CliError(f"{reported.text} {_not_stored(sent_before, lines)}", reported.code)
    first, last = lines[0].number, lines[-1].number
    which = f"line {first}" if first == last else f"lines {first} to {last}"
    text = f"{_before(sent_before)} {which} may or may not be stored; later lines are not."
    return CliError(f"{reported.text} {text}", reported.code)


def _before(count: int) -> str:
    return f"Stored before: {amount(count, 'message')};"


def _not_stored(sent_before: int, lines: Sequence[InputLine]) -> str:
    return f"{_before(sent_before)} those from line {lines[0].number} on are not stored."


def _print_receipt(topic: str, receipt: SendReceipt, *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "topic": topic,
                "qid": receipt.qid,
                "offset": receipt.offset,
                "id": receipt.message_id,
                "attempts": receipt.attempts,
                **({"handle": receipt.handle} if receipt.handle else {}),
            }
        )
        return
    again = f"  sent {receipt.attempts} times" if receipt.attempts > 1 else ""
    if again and not receipt.numbered:
        again += ", may be stored twice"
    if receipt.offset < 0:
        handle = f"  handle {receipt.handle}" if receipt.handle else ""
        print_line(f"{topic}  delayed  id {receipt.message_id}{handle}{again}")
        return
    print_line(f"{topic}  queue {receipt.qid}  offset {receipt.offset}  id {receipt.message_id}{again}")


def pairs_of(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Return properties given as NAME=VALUE. Raises CliError."""
    pairs = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise CliError(f"--property {text!r} is not NAME=VALUE", ExitCode.USAGE)
        pairs.append((name, value))
    return pairs


def _input(
    body: str | None, file: Path | None, stack: contextlib.ExitStack
) -> tuple[Iterable[InputLine | None], int | None]:
    """Choose where bodies come from; returns them and the size of the input in bytes where it is known."""
    if body is not None and file is not None:
        raise CliError("pass the message as an argument or with --file, not both", ExitCode.USAGE)
    if body is not None:
        if not body:
            raise CliError("the message is empty; a body has at least one byte", ExitCode.USAGE)
        return [InputLine(1, body.encode("utf-8", "surrogateescape"), 0)], None
    if (file is None or str(file) == STDIN) and (sys.stdin is None or (file is None and sys.stdin.isatty())):
        raise CliError("no message; pass it as an argument, with --file, or through a pipe", ExitCode.USAGE)
    if file is None or str(file) == STDIN:
        return lines_of(sys.stdin.buffer), None
    try:
        stream = stack.enter_context(file.open("rb"))
        return lines_of(stream), os.fstat(stream.fileno()).st_size
    except OSError as error:
        from conf.file_faults import file_fault, lowered

        reason = lowered(file_fault(error, file))
        raise CliError(
            f"cannot read {file}: {reason}; pass a file with one message per line", ExitCode.USAGE
        ) from error
