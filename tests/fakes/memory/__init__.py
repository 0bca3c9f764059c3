"""A broker in memory, shaped like Kafka, for tests of what stands on `upstream.source`.

Gaps between offsets, order within a queue only, queues that are given and revoked, slow appends and commits, and bodies
that come later: what a source may do, this one does.
"""

from tests.fakes.memory.broker import MemoryBroker
from tests.fakes.memory.cluster import Cluster, Record, SlowSyncs
from tests.fakes.memory.source import MemorySource

__all__ = ["Cluster", "MemoryBroker", "MemorySource", "Record", "SlowSyncs"]
