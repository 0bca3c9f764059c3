"""Accelerators (PEP 399): functions that exist twice, in Python and compiled; here is decided which runs (D38).

An accelerator is a module `*_accelerator.pyx` beside the Python that it does the work of, compiled by
`compile_accelerators.py` where the package is built with a C compiler. Nothing depends on it: where it is
missing, was compiled from other sources than stand beside it, or `PYDDMQ_PURE=1` is set, the Python runs. Both give the
same results, byte for byte.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import StrEnum
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

PURE_VARIABLE = "PYDDMQ_PURE"
"""Environment variable: 1 has all of them run in Python."""


class AcceleratorState(StrEnum):
    """How an accelerator runs, and why."""

    COMPILED = "compiled"
    PURE = "pure"
    """In Python, since the environment says so."""
    STALE = "stale"
    """In Python, since it was compiled from other sources."""
    ABSENT = "absent"
    """In Python, since it was not compiled."""


states: dict[str, AcceleratorState] = {}
"""Every accelerator that was asked for, by its module."""
pure_ways: dict[tuple[str, str], Callable[..., Any]] = {}
"""The Python function that each function of an accelerator replaces, by module and name."""


def accelerated(module: str, name: str, pure: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function of a compiled accelerator, or `pure`, which does the same, where that does not run."""
    pure_ways[module, name] = pure
    state, found = compiled(module)
    if os.environ.get(PURE_VARIABLE, "0") not in ("", "0"):
        state = AcceleratorState.PURE
    states[module] = state
    function: Callable[_P, _R] = getattr(found, name) if state is AcceleratorState.COMPILED else pure
    return function


@cache
def compiled(module: str) -> tuple[AcceleratorState, ModuleType | None]:
    """Return an accelerator's compiled module, whatever the environment says, or why there is none."""
    try:
        found = import_module(module)
    except ImportError:
        return AcceleratorState.ABSENT, None
    source = Path(str(found.__file__)).parent / f"{module.rpartition('.')[2]}.pyx"
    # An installed package may come without sources; its accelerators are of the same build.
    if source.exists() and fingerprint(source) != found.SOURCE:
        return AcceleratorState.STALE, None
    return AcceleratorState.COMPILED, found


def fingerprint(source: Path) -> str:
    """Return what an accelerator compiled from this file, and from what accelerators share, has as its `SOURCE`."""
    shared = Path(__file__).parent / "accelerator_parts.pxd"
    return sha256(source.read_bytes() + shared.read_bytes()).hexdigest()
