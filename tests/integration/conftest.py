"""Every test with a running node runs on both event loops that a node may have."""

from __future__ import annotations

import pytest

from tests import running_node
from tests.conftest import need_module


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run what starts a `RunningNode`, which takes a folder, once on asyncio's loop and once on uvloop."""
    if "RunningNode" in vars(metafunc.module) and "tmp_path" in metafunc.fixturenames:
        metafunc.parametrize("_loop_kind", ["asyncio", "uvloop"], indirect=True)


@pytest.fixture(autouse=True)
def _loop_kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loop that running nodes of this test get."""
    if getattr(request, "param", "asyncio") == "uvloop":
        need_module("uvloop", "pip install uvloop")
        monkeypatch.setattr(running_node, "on_uvloop", True)
