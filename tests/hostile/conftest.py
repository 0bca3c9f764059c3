"""Real nodes for the hostile tests, started as users start them: their memory is measured."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import StartNode, started_nodes


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Start nodes with free ports and a data directory of the test's own; they are stopped at its end."""
    yield from started_nodes(tmp_path, forked=False)
