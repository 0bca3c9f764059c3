"""Leaves: functions that exist twice, in Python and compiled; which of the two runs is decided here, at import (D38).

A leaf is a module `*_leaf.pyx` beside the Python that it does the work of, compiled by `compile_leaves.py` where the
package is built with a C compiler at hand. Nothing depends on it: where it is missing, was compiled from other
sources than stand beside it, or `PYDDMQ_PURE=1` is set, the Python runs. Both give the same results, byte for byte.
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
from typing import ParamSpec, TypeVar

_P = ParamSpec("_P")
_R = TypeVar("_R")

PURE_VARIABLE = "PYDDMQ_PURE"
"""Environment variable: 1 has all leaves run in Python."""


class LeafState(StrEnum):
    """How a leaf runs, and why."""

    COMPILED = "compiled"
    PURE = "pure"
    """In Python, since the environment says so."""
    STALE = "stale"
    """In Python, since it was compiled from other sources."""
    ABSENT = "absent"
    """In Python, since it was not compiled."""


states: dict[str, LeafState] = {}
"""Every leaf that was asked for, by its module."""


def leaf(module: str, name: str, pure: Callable[_P, _R]) -> Callable[_P, _R]:
    """Return a function of a compiled leaf, or `pure`, which does the same, where the leaf does not run."""
    state, found = compiled(module)
    if os.environ.get(PURE_VARIABLE, "0") not in ("", "0"):
        state = LeafState.PURE
    states[module] = state
    function: Callable[_P, _R] = getattr(found, name) if state is LeafState.COMPILED else pure
    return function


@cache
def compiled(module: str) -> tuple[LeafState, ModuleType | None]:
    """Return a leaf's compiled module, whatever the environment says, or why there is none."""
    try:
        found = import_module(module)
    except ImportError:
        return LeafState.ABSENT, None
    source = Path(str(found.__file__)).parent / f"{module.rpartition('.')[2]}.pyx"
    # An installed package may come without sources; its leaves are of the same build.
    if source.exists() and fingerprint(source) != found.SOURCE:
        return LeafState.STALE, None
    return LeafState.COMPILED, found


def fingerprint(source: Path) -> str:
    """Return what a leaf compiled from this file, and from what leaves share, has as its `SOURCE`."""
    shared = Path(__file__).parent / "leaf_parts.pxd"
    return sha256(source.read_bytes() + shared.read_bytes()).hexdigest()
