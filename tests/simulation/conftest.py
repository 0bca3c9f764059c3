"""What the simulated nodes log is kept from the output; the runs themselves read what matters of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from structlog.testing import capture_logs

from tests.fakes.http import forget_connectors


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    with capture_logs():
        yield
    forget_connectors()
