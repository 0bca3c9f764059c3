"""A progress bar for people, on stderr where that is a terminal: how many tasks of Spark's present stages are done.

Spark's own goes to the JVM's output, which is in the log file. How much is to come is unknown before the stages are
planned, so the bar is of those that run, and counts those that have ended.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any, Final, TextIO

from lag.spark.jobs.arguments import SPARK_ERRORS

SECONDS: Final = 0.5
WIDTH: Final = 30
_CLEAR: Final = "\r\x1b[K"


@contextmanager
def progress(spark: Any, what: str, out: TextIO | None = None) -> Iterator[None]:
    """Show how far Spark is while the block runs; nothing where `out` (stderr) is no terminal."""
    out = sys.stderr if out is None else out
    if not out.isatty():
        yield
        return
    end = Event()
    thread = Thread(target=_show, args=(spark.sparkContext.statusTracker(), what, out, end), daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
        out.write(_CLEAR)
        out.flush()


def _show(tracker: Any, what: str, out: TextIO, end: Event) -> None:
    seen: set[int] = set()
    while not end.wait(SECONDS):
        try:
            stages = {each: tracker.getStageInfo(each) for each in tracker.getActiveStageIds()}
        except (OSError, *SPARK_ERRORS):
            # It says itself, to who waits for it, that it has stopped.
            return
        seen |= stages.keys()
        known = [each for each in stages.values() if each is not None]
        tasks, done = sum(each.numTasks for each in known), sum(each.numCompletedTasks for each in known)
        out.write(_CLEAR + bar(what, len(seen) - len(stages), done, tasks))
        out.flush()


def bar(what: str, stages: int, done: int, tasks: int) -> str:
    """Return the line: what is made, how much of the present stages is done, and how many stages have ended."""
    full = WIDTH * done // tasks if tasks else 0
    return f"{what} [{'=' * full}{' ' * (WIDTH - full)}] {done} of {tasks} tasks, {stages} stages done"
