"""Real nodes for the hostile tests, as the acceptance tests start them."""

from __future__ import annotations

from tests.acceptance.conftest import start_node

__all__ = ["start_node"]
