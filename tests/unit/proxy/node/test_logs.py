"""Log lines: JSON where a machine reads them, one form for our lines and the libraries'."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from proxy.node import logs
from tests.admin_node import FixedClock


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _restore() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_lines_off_a_terminal_are_json_with_time_and_level() -> None:
    """A collector gets one JSON object per line, stamped by the clock that was handed in."""
    stream = io.StringIO()
    logs.configure(stream=stream, clock=FixedClock())
    structlog.get_logger().info("node_ready", topics=3)
    assert json.loads(stream.getvalue()) == {
        "event": "node_ready",
        "level": "info",
        "timestamp": "2025-10-09T08:53:20.000Z",
        "topics": 3,
    }


def test_lines_on_a_terminal_are_for_people() -> None:
    """On a terminal the line is not JSON and shows event and facts."""
    stream = _Terminal()
    logs.configure(stream=stream, clock=FixedClock())
    structlog.get_logger().warning("store_full", free=0)
    assert "store_full" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        json.loads(stream.getvalue())


def test_style_can_be_forced() -> None:
    """`json` holds on a terminal and `console` in a pipe, there without colour codes."""
    terminal, pipe = _Terminal(), io.StringIO()
    logs.configure("json", stream=terminal)
    structlog.get_logger().info("node_ready")
    assert json.loads(terminal.getvalue())["event"] == "node_ready"
    logs.configure("console", stream=pipe)
    structlog.get_logger().info("node_ready")
    assert "\x1b" not in pipe.getvalue()


def test_level_hides_what_is_below_it() -> None:
    """At level warning an info line costs nothing and shows nothing."""
    stream = io.StringIO()
    logs.configure("json", "warning", stream=stream)
    structlog.get_logger().info("node_ready")
    assert stream.getvalue() == ""


def test_library_lines_take_the_same_form() -> None:
    """What asyncio or aiohttp log comes as the same JSON, with the library's name and the exception."""
    stream = io.StringIO()
    logs.configure("json", stream=stream, clock=FixedClock())
    try:
        raise OSError("no more files")
    except OSError:
        logging.getLogger("asyncio").exception("accept failed on %s", "9613")
    line = json.loads(stream.getvalue())
    assert line["event"] == "accept failed on 9613"
    assert line["logger"] == "asyncio"
    assert line["exception"][0]["exc_value"] == "no more files"


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("library", [False, True])
def test_traceback_shows_no_local_variable(style: str, *, library: bool) -> None:
    """What a frame worked on (a body, a token) stays out of the log, in both forms and of both kinds of logger."""

    def check(token: bytes) -> None:
        parts = {"authorization": token}
        raise ValueError(f"one of {len(parts)} cannot be read")

    stream = _Terminal()
    logs.configure(style, stream=stream, clock=FixedClock())
    try:
        try:
            check(bytes([115, 101, 99, 114, 101, 116]))
        except ValueError as error:
            raise RuntimeError("no answer") from error
    except RuntimeError:
        if library:
            logging.getLogger("aiohttp.server").exception("call_failed")
        else:
            structlog.get_logger().exception("call_failed")
    line = stream.getvalue()
    for text in ("call_failed", "RuntimeError", "no answer", "one of 1 cannot be read", "test_logs.py", "check"):
        assert text in line
    assert "secret" not in line
    if style == "json":
        frames = [frame for each in json.loads(line)["exception"] for frame in each["frames"]]
        assert {"filename", "lineno", "name"} <= set(frames[0])
        assert not any(frame.get("locals") for frame in frames)


@pytest.mark.parametrize(("style", "level"), [("xml", "info"), ("json", "loud")])
def test_unknown_style_or_level_is_refused(style: str, level: str) -> None:
    """A typing error names what would be right."""
    with pytest.raises(ValueError, match="invalid log"):
        logs.configure(style, level)
