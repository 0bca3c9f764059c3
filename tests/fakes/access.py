"""Rights for tests of services that need none: everybody may do everything."""

from __future__ import annotations

from broker.runtime.bundle import Runtime
from proxy.services.access.denials import Denials
from proxy.services.access.guard import Guard


def open_guard(runtime: Runtime) -> Guard:
    """Return what looks at no rights."""
    return Guard(None, Denials(runtime.scheduler, runtime.metrics, runtime.limited_log))
