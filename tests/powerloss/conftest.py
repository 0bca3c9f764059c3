"""What the file systems of these tests need."""

from __future__ import annotations

import pytest

from tests.conftest import need
from tests.powerloss.mount import missing


@pytest.fixture
def fuse() -> None:
    """FUSE and the library for it; without them a skip, and in continuous integration a failure."""
    why = missing()
    need(not why, f"FUSE ({why})")
