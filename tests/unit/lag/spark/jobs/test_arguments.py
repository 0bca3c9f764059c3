"""Lists in the options of the jobs' programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lag.spark.jobs.arguments import folders, listed


def test_names_stand_behind_each_other_with_commas() -> None:
    """Blanks around them, and commas without a name, are nothing."""
    assert listed(" a, b,,c ") == ["a", "b", "c"]
    assert listed("") == []


def test_folders_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An executor that works elsewhere finds the same folder."""
    monkeypatch.chdir(tmp_path)
    assert folders("data, /mnt/lag") == [f"{tmp_path}/data", "/mnt/lag"]
