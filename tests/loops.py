"""The kinds of event loop that a node may run on: asyncio's, and uvloop's where that is installed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOPS = [pytest.param(asyncio.new_event_loop, id="asyncio")]
"""Makers of loops, as parameters of a test or a fixture."""
try:
    import uvloop

    LOOPS.append(pytest.param(uvloop.new_event_loop, id="uvloop"))
except ImportError:
    pass
