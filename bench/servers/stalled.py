"""`python -m bench.servers.stalled FILE [LEAST_MS] serve ...`: the command, noting what holds its loop up.

It does from a SIGUSR1 on; with LEAST_MS from the start, and only what takes as much processor time.

Every callback of the loop and every receipt of a connection is noted with what of it were calls to the system, by file,
and passes of the garbage collector. A SIGUSR2 writes FILE, as JSON.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_CALLS = ("fdatasync", "fsync", "pwritev", "replace", "posix_fallocate", "ftruncate", "open", "pread", "remove")
_NUMBERS = re.compile(r"\d{8,}")


class Watch:
    """Notes callbacks, while `on`.

    Attributes:
        on: Whether it does.
        began: When it began to, monotonic seconds.
        callbacks: Of each: name, seconds, processor seconds, (part, seconds) of what it called.
    """

    def __init__(self, least_seconds: float | None = None) -> None:
        self.on = least_seconds is not None
        self._least = least_seconds or 0.0
        self.began = 0.0
        self.callbacks: list[tuple[str, float, float, list[tuple[str, float]]]] = []
        self._parts: list[tuple[str, float]] = []
        self._inside = self._is_written = False
        self._collecting = 0.0

    def begin(self) -> None:
        """Note from now on."""
        self.on, self.began = True, time.perf_counter()

    def run(self, callback: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Make a call of the loop's."""
        if not self.on or self._inside:
            return callback(*arguments)
        self._inside = True
        self._parts = []
        cpu, begun = time.thread_time(), time.perf_counter()
        try:
            return callback(*arguments)
        finally:
            took = time.perf_counter() - begun
            self._inside = False
            spent = time.thread_time() - cpu
            is_written, self._is_written = self._is_written, False
            # What writes the document takes long itself.
            if spent >= self._least and not is_written:
                self.callbacks.append((_name(callback), took, spent, self._parts))

    def part(self, name: str, seconds: float) -> None:
        """Note a part of the call that runs."""
        self._parts.append((name, seconds))

    def watched(self, callback: Callable[..., Any]) -> Callable[..., Any]:
        """Return a callback that makes the call by `run`."""

        def call(*arguments: Any) -> Any:
            return self.run(callback, arguments)

        call.__qualname__ = getattr(callback, "__qualname__", type(callback).__name__)
        return call

    def system_call(self, name: str) -> None:
        """Note calls of a function of `os` as parts, with the file that they are about."""
        original = getattr(os, name)

        def call(*arguments: Any, **options: Any) -> Any:
            begun = time.perf_counter()
            try:
                return original(*arguments, **options)
            finally:
                if self._inside:
                    self.part(f"{name} {_file(arguments[0])}", time.perf_counter() - begun)

        setattr(os, name, call)

    def collected(self, phase: str, facts: dict[str, int]) -> None:
        """Note a pass of the garbage collector; it may come within any call."""
        if phase == "start":
            self._collecting = time.perf_counter()
        elif self._inside:
            self.part(f"gc generation {facts['generation']}", time.perf_counter() - self._collecting)

    def document(self) -> dict[str, Any]:
        """Return what was noted."""
        self._is_written = self._inside
        return {"seconds": time.perf_counter() - self.began, "callbacks": self.callbacks}


def _name(callback: Callable[..., Any]) -> str:
    """Name a callback; a step of a task by its coroutine."""
    for each in gc.get_referents(callback) if not hasattr(callback, "__code__") else ():
        if isinstance(each, asyncio.Task):
            return str(getattr(each.get_coro(), "__qualname__", "a task"))
    return getattr(callback, "__qualname__", type(callback).__name__)


def _file(what: Any) -> str:
    """Name a file by its last folder and itself, numbers left out."""
    try:
        path = os.readlink(f"/proc/self/fd/{what}") if isinstance(what, int) else str(what)
    except OSError:
        return "?"
    return _NUMBERS.sub("N", "/".join(path.split("/")[-2:]))


def watch_everything(watch: Watch) -> None:
    """Have the product's loop, connections, system calls and garbage collections noted."""
    from proxy.port.connection import Connection
    from proxy.process import serve

    made = serve._loop_factory()
    assert made is not None, "uvloop is not installed"

    class Loop(made):  # type: ignore[misc, valid-type]
        def call_soon(self, callback: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            return super().call_soon(watch.watched(callback), *arguments, **options)

        def call_later(self, delay: float, callback: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
            return super().call_later(delay, watch.watched(callback), *arguments, **options)

        def add_reader(self, descriptor: int, callback: Callable[..., Any], *arguments: Any) -> Any:
            return super().add_reader(descriptor, watch.watched(callback), *arguments)

    serve._loop_factory = lambda: Loop
    Connection.data_received = watch.watched(Connection.data_received)  # type: ignore[method-assign]
    for name in _CALLS:
        watch.system_call(name)
    gc.callbacks.append(watch.collected)


def main() -> None:
    """Run the command that follows the file's name."""
    from pyddmq.__main__ import main as product

    file, *words = sys.argv[1:]
    watch = Watch(float(words.pop(0)) / 1000 if words[0] != "serve" else None)
    watch_everything(watch)
    signal.signal(signal.SIGUSR1, lambda *_: watch.begin())
    signal.signal(signal.SIGUSR2, lambda *_: Path(file).write_text(json.dumps(watch.document())))
    sys.argv = ["pyddmq", *words]
    product()


if __name__ == "__main__":
    main()
