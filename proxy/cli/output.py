"""What commands print: JSON lines or text on stdout, progress and errors on stderr."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import select
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from msgspec import to_builtins

from proxy.cli.errors import CliError
from proxy.operate.text import printable
from proxy.process.exit_codes import ExitCode

_WIDE = 10_000
"""Columns of tables that go into a file or pipe where COLUMNS is not set: as many as they take."""

Advance = Callable[[float], None]
"""Sets how far a piece of work has come, in the unit of its total."""


def open_streams() -> bool:
    """Make stdout and stderr fit to be written to: what their encoding lacks becomes an escape.

    Returns:
        False when there is no stdout.
    """
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - stays open for the process's life
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return sys.stdout is not None


def print_json(value: object) -> int:
    """Print one JSON value, or view, on a line of its own, at once; returns OK, for commands that end with it."""
    return _write(_json_text(value, sys.stdout) + "\n")


def _json_text(value: object, stream: TextIO) -> str:
    """Return JSON in one line; in ASCII where the stream is not in UTF-8, whose escapes are not JSON's."""
    plain = to_builtins(value)
    return json.dumps(plain, ensure_ascii=not _in_utf8(stream), separators=(", ", ": "))


def _in_utf8(stream: TextIO) -> bool:
    return (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-") in ("utf-8", "utf8")


def print_line(text: str) -> int:
    """Print one line of text, at once; returns OK, as `print_json`."""
    return _write(text + "\n")


def print_text(text: str, *, first: str = "", then: str = "") -> int:
    """Print a sentence, folded at spaces to the terminal's width; returns OK, as `print_json`.

    Args:
        text: The sentence.
        first: Before the first line.
        then: Before each further line.
    """
    from proxy.cli.tables import folded

    return _write("\n".join(folded(text, _width(), first=first, then=then)) + "\n")


def _write(text: str) -> int:
    """Write to stdout, at once; returns OK. Raises as `writing`."""
    with writing("the output"):
        sys.stdout.write(text)
        sys.stdout.flush()
    return ExitCode.OK


@contextlib.contextmanager
def writing(where: object) -> Iterator[None]:
    """Turn what keeps the block from writing there into a sentence.

    Raises:
        BrokenPipeError: Nobody reads any more; `proxy.cli.app` ends the command quietly.
        CliError: It cannot be written for another reason, such as a full disk.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        from conf.file_faults import file_fault, lowered

        reason = lowered(file_fault(error, where if isinstance(where, Path) else None, to="write"))
        raise CliError(f"cannot write {where}: {reason}; pass another file", ExitCode.CHECK_FAILED) from error


def check_reader() -> None:
    """End a command that waits for something to print when its output is no longer read.

    Raises:
        BrokenPipeError: As the next write would.
    """
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    if any(events & (select.POLLERR | select.POLLHUP) for _, events in poll.poll(0)):
        raise BrokenPipeError


def print_error(text: str, *, code: int, as_json: bool) -> None:
    """Print an operating error on stderr: a sentence, or `{"error": {"exitCode", "message"}}`."""
    if as_json:
        sys.stderr.write(_json_text({"error": {"exitCode": code, "message": text}}, sys.stderr) + "\n")
    else:
        sys.stderr.write(f"pyddmq: {text}\n")


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> int:
    """Print a table that fits the terminal and cuts nothing (`proxy.cli.tables`); returns OK, as `print_json`.

    Args:
        title: Above the table.
        columns: Headings.
        rows: Cells, shown as they are (no markup).
        right: Indexes of columns that are aligned to the right.
    """
    from proxy.cli.tables import draw

    terminal = sys.stdout.isatty()
    shown = [[printable(cell) for cell in row] for row in rows]
    encoding = "utf-8" if _in_utf8(sys.stdout) else "ascii"
    return _write(draw(title, columns, shown, right=right, width=_width(), encoding=encoding, colours=terminal))


def _width() -> int:
    """Return the width of COLUMNS, or of the terminal; a file or pipe has no width of its own."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        return _WIDE
    from rich.console import Console

    return Console().width


def body_fields(body: bytes) -> Mapping[str, str]:
    """Return `body` and `bodyEncoding` of a message in JSON: text where it is UTF-8, base64 otherwise."""
    try:
        return {"body": body.decode(), "bodyEncoding": "utf-8"}
    except UnicodeDecodeError:
        return {"body": base64.b64encode(body).decode(), "bodyEncoding": "base64"}


@contextlib.contextmanager
def progress(title: str, total: float | None, *, unit: str, enabled: bool) -> Iterator[Advance]:
    """Show a progress bar on stderr while the block runs, when stderr is a terminal.

    Args:
        title: In front of the bar.
        total: Amount of work in `unit`; None when it is not known.
        unit: `messages` or `bytes`.
        enabled: False shows none.
    """
    if not enabled or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    amount = DownloadColumn() if unit == "bytes" else MofNCompleteColumn()
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        amount,
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
        # Lines on stdout go above the bar only where both share a terminal.
        redirect_stdout=sys.stdout.isatty(),
        redirect_stderr=False,
    ) as bar:
        task = bar.add_task(title, total=total)
        yield lambda done: bar.update(task, completed=done)
