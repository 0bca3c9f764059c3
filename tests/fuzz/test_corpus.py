"""Everything that fuzzing keeps is replayed, without a fuzzer: seeds, and whatever was found once."""

from __future__ import annotations

import re
import tracemalloc
from pathlib import Path

import pytest

from broker.runtime import names
from tests.fuzz import store_files
from tests.fuzz.targets import CORPUS, TARGETS, kept
from tests.tried import tried

MEMORY_BYTES_MAX = 16 << 20
KEPT = [(name, path) for name in TARGETS for path in kept(name)]


@pytest.mark.parametrize(("name", "path"), KEPT, ids=[f"{name}-{path.name}" for name, path in KEPT])
def test_kept_input_breaks_no_promise(name: str, path: Path) -> None:
    """The target's promises hold for this input (see the target's module)."""
    tried("fuzz", "any bytes", operations=[name], states=["kept"])
    TARGETS[name](path.read_bytes())


def test_every_target_has_seeds_and_they_are_small() -> None:
    """A search starts from real calls and files; together they stay below 200 KB."""
    assert all(any(kept(name)) for name in TARGETS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 200_000


@pytest.mark.parametrize("path", list(kept("acks")), ids=lambda path: path.name)
def test_journal_of_a_few_bytes_takes_no_memory_for_what_it_says(path: Path) -> None:
    """A range of a thousand million offsets is some bytes of a forged journal."""
    tracemalloc.start()
    try:
        TARGETS["acks"](path.read_bytes())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MEMORY_BYTES_MAX


@pytest.mark.parametrize("seed", ["lives-0", "topics-0", "topics-2"])
def test_name_that_leads_out_would_be_noticed(monkeypatch: pytest.MonkeyPatch, seed: str) -> None:
    """The fence of the directory's target can fail: with every name taken for a topic's, the ways out are reported."""
    monkeypatch.setattr(names, "_STORED", re.compile(b".+", re.DOTALL))
    with pytest.raises(AssertionError, match="leads up"):
        TARGETS["directory"]((CORPUS / "directory" / seed).read_bytes())


def test_wrong_record_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker of the store's targets can fail: with every sum wrong, records that are handed out are reported."""
    monkeypatch.setattr(store_files, "sum_matches", lambda record: False)
    with pytest.raises(AssertionError, match="wrong sum"):
        TARGETS["log"]((CORPUS / "log" / "flags-0").read_bytes())
