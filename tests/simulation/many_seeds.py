"""Many seeds, in two processes: what they did together, until nothing that must be done is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from typing import Any

import pytest

PROCESSES = 2

Run = Callable[[int], Any]
"""Returns the report of a seed; a function of a module, which other processes find by its name."""


class ManySeeds:
    """Seeds and what they did.

    Attributes:
        seeds: How many ran.
        counts: By the report's attribute, how often each thing was done.
        published: Publishes that were acknowledged.
        seconds: Virtual time.
    """

    def __init__(self, run: Run, wanted: Mapping[str, Iterable[str]], of_failed: Callable[[int], str]) -> None:
        """Begin.

        Args:
            run: Runs one.
            wanted: Names of what must be done, by the report's attribute that counts it.
            of_failed: Returns what else to say of a seed that failed.
        """
        self.seeds = self.published = 0
        self.seconds = 0.0
        self.counts: dict[str, Counter[str]] = {each: Counter() for each in wanted}
        self._run, self._wanted, self._of_failed = run, wanted, of_failed

    def until_all_is_done(self, least: int, more: int, most: int) -> None:
        """Run the first `least` seeds, then `more` at a time until nothing is missing or `most` ran."""
        with self._pool() as pool:
            self._add(pool, range(least))
            while self.missing() and self.seeds < most:
                self._add(pool, range(self.seeds, self.seeds + more))

    def run(self, seeds: Sequence[int]) -> None:
        """Run these."""
        with self._pool() as pool:
            self._add(pool, seeds)

    def missing(self) -> list[str]:
        """What none of them did."""
        return [name for kind, names in self._wanted.items() for name in names if not self.counts[kind][name]]

    def print(self) -> None:
        """Print all of it."""
        print(f"\n{self.seeds} seeds, {self.seconds:.0f} virtual seconds, {self.published} publishes acknowledged")
        for kind, counts in self.counts.items():
            print(f"{kind}:", dict(sorted(counts.items())))

    @staticmethod
    def _pool() -> ProcessPoolExecutor:
        return ProcessPoolExecutor(PROCESSES, mp_context=get_context("spawn"))

    def _add(self, pool: ProcessPoolExecutor, seeds: Sequence[int]) -> None:
        for seed, result in zip(seeds, pool.map(partial(_attempt, self._run), seeds), strict=True):
            if isinstance(result, str):
                pool.shutdown(cancel_futures=True)
                pytest.fail(f"seed {seed}: {result}\n{self._of_failed(seed)}")
            self.seeds += 1
            self.published += result.published
            self.seconds += result.seconds
            for kind, counts in self.counts.items():
                counts.update(getattr(result, kind))


def _attempt(run: Run, seed: int) -> Any:
    """Return what the run did, or how it failed."""
    try:
        return run(seed)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
