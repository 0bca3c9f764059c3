"""Shared by the tests of the admin port and of commands."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from proxy.admin.console import shell


@pytest.fixture(autouse=True)
def _patient_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a refused page say so by its status, however busy the machine is: it begins only when it is made."""
    monkeypatch.setattr(shell, "FIRST_BYTE_SECONDS", 30.0)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make `pyspark` one that cannot be imported; what was imported with it is back afterwards, and nothing else.

    A module is known twice, by its name and as a value in its package. Both have to go and both have to come back: else
    later tests change one module, and what they test has another.
    """

    def ours() -> list[str]:
        return [name for name in sys.modules if name == "lag.spark" or name.startswith("lag.spark.")]

    with monkeypatch.context() as patched:
        for name in ours():
            package, _, last = name.rpartition(".")
            patched.delattr(sys.modules[package], last)
        for name in ours():
            patched.delitem(sys.modules, name)
        patched.setitem(sys.modules, "pyspark", None)
        patched.setitem(sys.modules, "pyspark.sql", None)
        yield
        for name in ours():
            del sys.modules[name]
