"""Simulated time, disk and network: a whole node or an embedded broker runs in memory, and a run replays from its seed.

    from pyddmq.testing import SimDisk, SimNetwork, VirtualClock, VirtualLoop

Two pairs of time. `ManualClock` and `ManualScheduler` are for code of callbacks: the test makes each turn, and what a
callback raises reaches the test. `VirtualClock` and `VirtualLoop` are for coroutines and whole nodes. `SimDisk` and
`SimSyncs` are the disk, `SimNetwork` the network; `Process` is what one kill or SIGSTOP affects.

These need the extra `server`, and the names of the rooms as `pyddmq.broker` does; `pyddmq.testing.client` does not.
docs/howto/test-in-memory.md has an example.

Raises:
    ClientAlone: The extra is not installed.
    NameTaken: A module of the program has the name of a room.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyddmq.testing.loop import Process, TurnsExceeded, VirtualClock, VirtualLoop
    from pyddmq.testing.manual_time import ManualClock, ManualHandle, ManualScheduler
    from pyddmq.testing.network import NetworkFaults, SimListener, SimNetwork, SimTransport
    from pyddmq.testing.sim_disk import PowerCut, SimDisk, SimFile
    from pyddmq.testing.sim_syncs import SimSyncs

__all__ = [
    "ManualClock",
    "ManualHandle",
    "ManualScheduler",
    "NetworkFaults",
    "PowerCut",
    "Process",
    "SimDisk",
    "SimFile",
    "SimListener",
    "SimNetwork",
    "SimSyncs",
    "SimTransport",
    "TurnsExceeded",
    "VirtualClock",
    "VirtualLoop",
]

_MODULES = ("loop", "manual_time", "network", "sim_disk", "sim_syncs")

if not TYPE_CHECKING:
    # Type checkers see the names above, and none that are not there.

    def __getattr__(name: str) -> object:
        """Import the names when the first one is used: a program with the client alone uses `client` beside them."""
        if name not in __all__:
            raise AttributeError(f"module 'pyddmq.testing' has no attribute {name!r}")
        from pyddmq.rooms import pin

        pin("pyddmq.testing")
        for module in _MODULES:
            found = import_module("pyddmq.testing." + module)
            globals().update({each: getattr(found, each) for each in __all__ if hasattr(found, each)})
        return globals()[name]
