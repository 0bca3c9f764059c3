"""The bar that shows how far Spark is."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")

import lag.spark.jobs.progress as module
from lag.spark.jobs.progress import WIDTH, bar, progress


class Terminal(io.StringIO):
    """What is written there, which says that it is a terminal."""

    def isatty(self) -> bool:
        """It is one."""
        return True


def session(stages: dict[int, Any]) -> Any:
    """Return what a session says of its stages."""
    tracker = SimpleNamespace(getActiveStageIds=lambda: list(stages), getStageInfo=stages.get)
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_bar_says_what_is_done_of_how_many() -> None:
    """Also before there is anything to do, and when all of it is done."""
    assert bar("report", 3, 5, 10) == f"report [{'=' * 15}{' ' * 15}] 5 of 10 tasks, 3 stages done"
    assert f"[{' ' * WIDTH}] 0 of 0 tasks" in bar("report", 0, 0, 0)
    assert f"[{'=' * WIDTH}] 2 of 2 tasks" in bar("report", 0, 2, 2)


def test_terminal_shows_it_and_is_clean_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stages that Spark has forgotten count for nothing; a file has none of it."""
    monkeypatch.setattr(module, "SECONDS", 0.001)
    stages = {1: SimpleNamespace(numTasks=4, numCompletedTasks=1), 2: None}
    screen, file = Terminal(), io.StringIO()
    with progress(session(stages), "report", screen):
        while "1 of 4 tasks" not in screen.getvalue():
            pass
    assert screen.getvalue().endswith("\r\x1b[K")
    with progress(session(stages), "report", file):
        pass
    assert file.getvalue() == ""


def test_bar_ends_when_spark_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """What made it end is for the block to say."""
    monkeypatch.setattr(module, "SECONDS", 0.001)

    def gone() -> list[int]:
        raise ConnectionError("the JVM is gone")

    made = session({})
    made.sparkContext.statusTracker().getActiveStageIds = gone
    with progress(made, "report", Terminal()) as shown:
        assert shown is None
