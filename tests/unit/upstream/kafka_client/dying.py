"""A child that dies as librdkafka has its process die, before it answers."""

from __future__ import annotations

import os


def main() -> None:
    """Die."""
    os.abort()
