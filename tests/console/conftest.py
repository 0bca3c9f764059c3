"""The browser of the tests of the console."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser for all tests."""
    if os.environ.get("CI") != "true":
        pytest.importorskip("playwright")
        if not CHROMIUM.exists():
            pytest.skip(f"{CHROMIUM} does not exist")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield opened
        opened.close()
