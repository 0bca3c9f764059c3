"""Paths and parameters that an earlier version had: each is refused with a sentence that names its replacement."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from aiohttp import web

REMOVED: Mapping[str, str] = MappingProxyType(
    {
        "/v3/": "use /api/lag, or /metrics with Prometheus",
        "/burrow/admin": "use /healthz",
        "/api/lag/alarms": "use /api/lag, and route alarms by /metrics with Prometheus (deploy/prometheus)",
        "/api/lag/mute": "set a silence in Alertmanager (deploy/prometheus)",
        "/api/lag?mode": "set `delayTimeThreshold` and `committedLagThreshold` of the subscription",
    }
)
"""By path, by the beginning of paths (ends with `/`), or by a path and its parameter: what to do instead."""


def refuse_removed(path: str, parameters: Collection[str]) -> None:
    """Refuse a path or a parameter that was removed, under any method.

    Raises:
        HTTPGone: The path was removed.
        HTTPBadRequest: A parameter of the path was removed.
    """
    for removed, instead in REMOVED.items():
        old_path, _, parameter = removed.partition("?")
        text = f"{removed} was removed; {instead}."
        if parameter and path == old_path and parameter in parameters:
            raise web.HTTPBadRequest(text=text)
        if not parameter and (path == old_path or (old_path.endswith("/") and path.startswith(old_path))):
            raise web.HTTPGone(text=text)
