"""Where log lines go and how they look: readable on a terminal, JSON otherwise, always on stderr.

Stdout belongs to what a command prints (the ready line, D24). Lines of the standard library's loggers (asyncio,
aiohttp) take the same way and the same form, so that a collector sees one format.
"""

from __future__ import annotations

import datetime
import logging
import sys
from collections.abc import Sequence
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from broker.notices import Notices
from broker.seams import Clock, SystemClock

__all__ = ["LEVELS", "Notices", "configure"]

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(
    style: str = "auto", level: str = "info", *, stream: TextIO | None = None, clock: Clock | None = None
) -> None:
    """Set up logging for this process; calling it again replaces the earlier set-up.

    Args:
        style: `console`, `json`, or `auto`: console when `stream` is a terminal, JSON otherwise.
        level: Lowest level that is written, one of `LEVELS`.
        stream: Where lines go; stderr when left out.
        clock: Gives the time stamp of a line; the machine's when left out.

    Raises:
        ValueError: An unknown style or level.
    """
    if style not in ("auto", "console", "json"):
        raise ValueError(f"log style {style!r} is none of auto, console, json")
    if level not in LEVELS:
        raise ValueError(f"log level {level!r} is none of {', '.join(LEVELS)}")
    target = sys.stderr if stream is None else stream
    terminal = target.isatty()
    shared = _shared_processors(clock or SystemClock())
    final = _final_processors("console" if style == "console" or (style == "auto" and terminal) else "json", terminal)
    structlog.configure(
        processors=[*shared, *final],
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(target),
        # Not cached: a later configure() must reach loggers made at import, and lines are rare.
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(target)
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


def _shared_processors(clock: Clock) -> list[Processor]:
    def stamp(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        moment = datetime.datetime.fromtimestamp(clock.wall_ms() / 1000, datetime.UTC)
        event["timestamp"] = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        return event

    return [structlog.contextvars.merge_contextvars, structlog.processors.add_log_level, stamp]


def _final_processors(style: str, colours: bool) -> Sequence[Processor]:
    if style == "console":
        return [structlog.dev.ConsoleRenderer(colors=colours, pad_event_to=28)]
    return [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer(default=str, ensure_ascii=False)]


def _logger_name(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Name the library that a line comes from."""
    record = event.get("_record")
    if record is not None:
        event["logger"] = record.name
    return event
