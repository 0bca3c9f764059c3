"""What the programs of the jobs have in common: how they end, and lists in their options."""

from __future__ import annotations

import os
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

OK: Final = 0
FAILED: Final = 1
WRONG: Final = 2
"""Exit codes: done, failed, and an option that is wrong."""

SPARK_ERRORS: Final = (PySparkException, Py4JError, RuntimeError)
"""What comes of Spark when it cannot run, or fails in the middle."""


def first_sentence(error: BaseException) -> str:
    """Return what an error says, in one line: those of Spark have the stacks of its machines behind it."""
    lines = [line.strip().removeprefix(": ") for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("An error occurred while calling", "at "))]
    return said[0] if said else type(error).__name__


def listed(text: str) -> list[str]:
    """Return names that stand behind each other with commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


def folders(text: str) -> list[str]:
    """Return folders that stand behind each other with commas, absolute: executors work in other folders."""
    return [os.path.abspath(each) for each in listed(text)]
