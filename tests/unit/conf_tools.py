"""What the tests of configurations share."""

from __future__ import annotations

from typing import Any

import pytest

from conf import ConfigError, loads


def refused(text: str, **options: Any) -> str:
    """Load a wrong configuration; return its problems, a line each."""
    with pytest.raises(ConfigError) as caught:
        loads(text, file="f.yaml", **options)
    return str(caught.value)
