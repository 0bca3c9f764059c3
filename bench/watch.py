"""Processor time of the parts of some work, each without the parts that it calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import process_time
from typing import Any


class Watch:
    """Time spent in parts, each without the parts that it called.

    Attributes:
        spent: Seconds of processor time by part.
    """

    def __init__(self, parts: Sequence[str]) -> None:
        self.spent = dict.fromkeys(parts, 0.0)
        self._inner = [0.0]

    def run(self, part: str, work: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Do some work and count its time for a part."""
        before = process_time()
        self._inner.append(0.0)
        try:
            return work(*given, **named)
        finally:
            taken = process_time() - before
            self.spent[part] += taken - self._inner.pop()
            self._inner[-1] += taken

    def watch(self, owner: Any, name: str, part: str) -> None:
        """Count all calls of a function for a part from now on."""
        work = getattr(owner, name)
        setattr(owner, name, lambda *given, **named: self.run(part, work, *given, **named))
