"""The admin port: health, metrics, a JSON API and a console.

aiohttp is imported when `AdminServer` is first asked for, not with this package (D38).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from proxy.admin.server import AdminServer

__all__ = ["AdminServer"]


def __getattr__(name: str) -> Any:
    if name == "AdminServer":
        from proxy.admin.server import AdminServer

        return AdminServer
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
