"""All mutants, a module for each promise of docs/promises.md or part of one."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import cast

from tests.mutants.mutant import Mutant

PARTS = tuple(sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem != "__init__"))

MUTANTS: tuple[Mutant, ...] = tuple(
    mutant
    for part in PARTS
    for mutant in cast("tuple[Mutant, ...]", import_module(f"tests.mutants.catalogue.{part}").MUTANTS)
)
