"""Simulated time and network for tests of whole nodes: the same code as in production, with every wait in memory.

A test builds a `VirtualLoop`, a `VirtualClock` over it and a `SimNetwork`, and hands them to the assembly of a node
together with `broker.testing.SimDisk`. Nothing here may be imported by the product itself.
"""

from __future__ import annotations

from proxy.testing.loop import Process, TurnsExceeded, VirtualClock, VirtualLoop
from proxy.testing.network import NetworkFaults, SimListener, SimNetwork, SimTransport

__all__ = [
    "NetworkFaults",
    "Process",
    "SimListener",
    "SimNetwork",
    "SimTransport",
    "TurnsExceeded",
    "VirtualClock",
    "VirtualLoop",
]
