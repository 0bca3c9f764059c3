"""Mutants, run: each in turn in a copy of the tree, against the tests that must notice."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tests.mutants.mutant import ROOT, Mutant

LEFT_OUT = (
    ".git",
    ".venv",
    ".*_cache",
    ".hypothesis",
    ".fuzz",
    "__pycache__",
    "data",
    "build",
    "dist",
    "*_accelerator.c",
)
SECONDS_MAX = 600
"""How long the tests of one mutant may take; a fault that makes a test hang is not caught."""
PATIENCE_SECONDS = "40"
"""How long tests wait here for what a fault may keep from coming."""
_SUMMARY = re.compile(r"^(?P<outcome>FAILED|ERROR) (?P<test>\S+?)(?:\[|$| )", re.MULTILINE)


class Verdict(NamedTuple):
    """What became of a mutant.

    Attributes:
        mutant: Which one.
        missed: Tests that did not fail by an assertion or an exception of their own, though they should.
        output: What the tests printed.
    """

    mutant: Mutant
    missed: tuple[str, ...]
    output: str

    @property
    def caught(self) -> bool:
        """Whether every named test failed."""
        return not self.missed


def copy_tree(target: Path) -> None:
    """Copy what the tests need into `target`, an empty folder."""
    shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns(*LEFT_OUT), dirs_exist_ok=True)


@contextmanager
def mutated(tree: Path, mutant: Mutant) -> Iterator[None]:
    """The tree with the fault in it, for as long as this lasts.

    Raises:
        ValueError: The fault cannot be put in; see `Mutant.text`.
    """
    file = tree / mutant.file
    before = file.read_text(encoding="utf-8")
    file.write_text(mutant.text(tree), encoding="utf-8")
    try:
        yield
    finally:
        file.write_text(before, encoding="utf-8")


def run_tests(tree: Path, tests: Sequence[str], *, seconds_max: int) -> tuple[int, str]:
    """Run tests of the tree, in Python alone, since a fault in Python would not show where an accelerator runs.

    Returns:
        pytest's exit code, or -1 when time ran out; what it printed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "COV_"))}
    environment |= {"PYTHONPATH": str(tree), "PYDDMQ_PURE": "1", "PYDDMQ_MUTANT": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYDDMQ_TESTS_PATIENCE"] = PATIENCE_SECONDS
    command = [sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-m", "", "--tb=short", *tests]
    with subprocess.Popen(
        command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    ) as running:  # fmt: skip
        try:
            printed = running.communicate(timeout=seconds_max)[0]
            return running.returncode, printed
        except subprocess.TimeoutExpired:
            # With the nodes that its tests have started.
            os.killpg(running.pid, signal.SIGKILL)
            return -1, running.communicate()[0]


def judge(tree: Path, mutant: Mutant) -> Verdict:
    """Put the fault in, run its tests, remove it again."""
    with mutated(tree, mutant):
        code, output = run_tests(tree, mutant.caught_by, seconds_max=SECONDS_MAX)
    failed = (
        {found["test"] for found in _SUMMARY.finditer(output) if found["outcome"] == "FAILED"} if code == 1 else set()
    )
    return Verdict(mutant, tuple(test for test in mutant.caught_by if not _is_among(test, failed)), output)


def _is_among(test: str, failed: set[str]) -> bool:
    """Whether a test, or one of a class, is among those that pytest's summary names, without a parameter's values."""
    reported = test.partition("[")[0]
    return reported in failed or any(each.startswith(f"{reported}::") for each in failed)
