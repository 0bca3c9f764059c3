"""What the programs of the jobs have in common: how they end, and lists in their options."""

from __future__ import annotations

import os
from typing import Final

OK: Final = 0
FAILED: Final = 1
WRONG: Final = 2
"""Exit codes: done, failed, and an option that is wrong."""


def listed(text: str) -> list[str]:
    """Return names that stand behind each other with commas."""
    return [each.strip() for each in text.split(",") if each.strip()]


def folders(text: str) -> list[str]:
    """Return folders that stand behind each other with commas, absolute: executors work in other folders."""
    return [os.path.abspath(each) for each in listed(text)]
