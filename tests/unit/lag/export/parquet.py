"""Whether pyarrow is there: tests that need it are skipped without, and fail where everything must be there."""

from __future__ import annotations

import importlib.util
import os

import pytest


def need_pyarrow() -> None:
    """Skip a test, or fail it under CI, where pyarrow is missing."""
    if importlib.util.find_spec("pyarrow") is None:
        reason = "pyarrow is missing: pip install 'pyarrow>=18,<25'"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
