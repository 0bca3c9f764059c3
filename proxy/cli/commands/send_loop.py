"""`pyddmq send --every` and `--growth`: messages that are delivered again and again."""

from __future__ import annotations

import math
from typing import NamedTuple

from broker.runtime.seams import Clock
from proxy.cli.errors import CliError
from proxy.cli.moments import duration_option, moment_option
from proxy.process.exit_codes import ExitCode
from pyddmq import OutgoingMessage, Producer


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
