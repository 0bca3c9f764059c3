"""Simulated time, disk and network: a whole node or an embedded broker runs in memory, and a run replays from its seed.

    from pyddmq.testing import SimDisk, SimNetwork, VirtualClock, VirtualLoop

Two pairs of time. `ManualClock` and `ManualScheduler` are for code of callbacks: the test makes each turn, and what a
callback raises reaches the test. `VirtualClock` and `VirtualLoop` are for coroutines and whole nodes. `SimDisk` and
`SimSyncs` are the disk, `SimNetwork` the network; `Process` is what one kill or SIGSTOP affects.

Needs the extra `server`, and the names of the rooms as `pyddmq.broker` does. docs/howto/test-in-memory.md has an
example.

Raises:
    ClientAlone: The extra is not installed.
    NameTaken: A module of the program has the name of a room.
"""

from __future__ import annotations

from pyddmq.rooms import pin

pin("pyddmq.testing")

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
