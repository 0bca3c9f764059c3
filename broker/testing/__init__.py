"""Simulated versions of the seams of `broker.runtime.seams`, for tests of everything above the disk and the clock.

The contract tests of the seams run the real and the simulated disk through one suite.
"""

from broker.testing.manual_time import ManualClock, ManualHandle, ManualScheduler
from broker.testing.sim_disk import PowerCut, SimDisk, SimFile
from broker.testing.sim_syncs import SimSyncs

__all__ = ["ManualClock", "ManualHandle", "ManualScheduler", "PowerCut", "SimDisk", "SimFile", "SimSyncs"]
