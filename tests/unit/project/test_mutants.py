"""The catalogue of mutants fits the code that it changes, and the rows of the page that it names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from tests.mutants.catalogue import MUTANTS, PARTS
from tests.mutants.mutant import ROOT, Mutant

PROOF = re.compile(r"`(tests/[\w/]+\.py::\w+)`")
W_ROW = re.compile(r"^\| (W\d+) \| .+? \| (.+?) \| (.+?) \|$", re.MULTILINE)


@cache
def _tests_of(file: str) -> frozenset[str]:
    """Names of the test functions and classes of a file, those that hypothesis makes of a model among them."""
    tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    made = [node.targets[0] for node in tree.body if isinstance(node, ast.Assign)]
    return frozenset(
        [node.name for node in ast.walk(tree) if isinstance(node, kinds)]
        + [node.id for node in made if isinstance(node, ast.Name)]
    )


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_mutant_fits_the_code_and_its_tests_are_there(mutant: Mutant) -> None:
    """The lines it changes stand once where it looks for them; what it makes of them is Python; its tests exist."""
    text = mutant.text()
    if mutant.file.endswith(".py"):
        ast.parse(text)
    assert mutant.caught_by
    for test in mutant.caught_by:
        file, _, name = test.partition("::")
        assert name.partition("[")[0] in _tests_of(file), f"{file} has no test {name}"


def test_names_are_unique() -> None:
    """A name in a report names one mutant."""
    assert not [name for name, count in Counter(mutant.name for mutant in MUTANTS).items() if count > 1]


def test_rows_of_mutants_are_on_the_page() -> None:
    """A mutant of a row breaks a test that the row names: what the page says and what is proven are the same."""
    page = (ROOT / "docs" / "ddmq-faults.md").read_text(encoding="utf-8")
    proofs = {row: set(PROOF.findall(proof)) for row, _, proof in W_ROW.findall(page)}
    wrong = [
        (mutant.name, row)
        for mutant in MUTANTS
        for row in mutant.rows
        if not proofs.get(row, set()) & {test.partition("[")[0] for test in mutant.caught_by}
    ]
    assert not wrong


def test_promises_cite_every_part_of_the_catalogue() -> None:
    """Each file of the catalogue is named by the promise that its faults break."""
    page = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
    assert not [part for part in PARTS if f"`tests/mutants/catalogue/{part}.py`" not in page]


def test_catalogue_stays_small() -> None:
    """A mutant stands for a promise or a fault: a new one replaces one that says less."""
    assert 95 <= len(MUTANTS) <= 110


def test_files_of_mutants_are_the_products() -> None:
    """A mutant breaks the product, never a test."""
    assert not [mutant.name for mutant in MUTANTS if Path(mutant.file).parts[0] in ("tests", "bench", "docs")]
