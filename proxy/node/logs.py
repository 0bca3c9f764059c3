"""Where log lines go and how they look: readable on a terminal, JSON otherwise, always on stderr.

Stdout belongs to what a command prints (the ready line, D24). Lines of the standard library's loggers (asyncio,
aiohttp) take the same way and the same form, so that a collector sees one format.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import sys
from collections.abc import Sequence
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from broker.runtime.metrics import Counter, declare
from broker.runtime.seams import Clock, SystemClock

LOST = declare(
    "pyddmq_log_lines_lost_total", "Log lines that could not be written: stderr is on a full disk, or is not read"
)

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(
    style: str = "auto",
    level: str = "info",
    *,
    stream: TextIO | None = None,
    clock: Clock | None = None,
    lost: Counter | None = None,
) -> None:
    """Set up logging for this process; calling it again replaces the earlier set-up.

    Args:
        style: `console`, `json`, or `auto`: console when `stream` is a terminal, JSON otherwise.
        level: Lowest level that is written, one of `LEVELS`.
        stream: Where lines go; stderr when left out.
        clock: Gives the time stamp of a line; the machine's when left out.
        lost: Counts lines that could not be written.

    Raises:
        ValueError: An unknown style or level.
    """
    if style not in ("auto", "console", "json"):
        raise ValueError(f"invalid log style {style!r}; use auto, console or json")
    if level not in LEVELS:
        raise ValueError(f"invalid log level {level!r}; use one of {', '.join(LEVELS)}")
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    sink = cast("TextIO", _Sink(target, lost or Counter()))
    shared = _shared_processors(clock or SystemClock())
    final = _final_processors("console" if style == "console" or (style == "auto" and terminal) else "json", terminal)
    structlog.configure(
        processors=[*shared, *final],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(sink),
        # Not cached: a later configure() must reach loggers made at import, and lines are rare.
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sink)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _logger_name],
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    # Libraries report per request at info; only what needs attention is of interest here.
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(LEVELS[level], logging.WARNING))


class _Sink:
    """A stream that takes what it can: a full disk, or a reader that has gone, costs lines and not the node (D5)."""

    def __init__(self, stream: TextIO, lost: Counter) -> None:
        self._stream = stream
        self._lost = lost

    def write(self, text: str) -> None:
        try:
            self._stream.write(text)
        except (OSError, ValueError):  # ValueError: the stream is closed.
            self._lost.add()

    def flush(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()


def _shared_processors(clock: Clock) -> list[Processor]:
    def stamp(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        moment = datetime.datetime.fromtimestamp(clock.wall_ms() / 1000, datetime.UTC)
        event["timestamp"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event

    return [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, stamp]


def _final_processors(style: str, colours: bool) -> Sequence[Processor]:
    if style == "console":
        # The formatters that ship as defaults show local variables, here and with JSON: bodies, keys, tokens.
        plain = structlog.dev.plain_traceback
        return [structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=28, exception_formatter=plain)]
    frames = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [
        structlog.processors.ExceptionRenderer(frames),
        structlog.processors.JSONRenderer(default=str, ensure_ascii=False),
    ]


def _logger_name(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Name the library that a line comes from."""
    record = event.get("_record")
    if record is not None:
        event["logger"] = record.name
    return event
