"""What the tests of deduplicating producers share: keys, and the memory of a store."""

from __future__ import annotations

from broker.deduplication.deduplication import Deduplication
from broker.deduplication.window import DeduplicationWindow, WindowLimits
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.seams import Clock, Disk
from broker.runtime.steps import run_now
from broker.store import Store
from proxy.services.keyed_sends import KeyedSends
from pyddmq.testing import ManualClock

START = 0x1234
NAME = b"FE0102030405%08X" % START
FIRST = START << 16


def key(number: int, name: bytes = NAME) -> bytes:
    """UNIQ_KEY of a producer's message, counted from 0."""
    return b"%b%012X" % (name, (int(name[12:], 16) << 16) + number)


def keys(first: int, count: int, name: bytes = NAME) -> list[bytes]:
    """Those of so many in a row."""
    return [key(number, name) for number in range(first, first + count)]


def window(*, messages: int = 4, producers: int = 3, silence_ms: int = 1000) -> tuple[DeduplicationWindow, Metrics]:
    """A small one, and its counts."""
    metrics = Metrics()
    limits = WindowLimits(silence_ms=silence_ms, messages=messages, producers=producers)
    return DeduplicationWindow(limits, metrics), metrics


def memory(
    store: Store,
    disk: Disk,
    *,
    clock: Clock | None = None,
    metrics: Metrics | None = None,
    limits: WindowLimits | None = None,
) -> Deduplication:
    """Open what a store remembers of deduplicating producers."""
    return run_now(
        Deduplication.opening(
            store, runtime_of(disk, clock or ManualClock(), metrics=metrics), limits or WindowLimits()
        )
    )


def keyed_sends(store: Store, *, disk: Disk, metrics: Metrics) -> KeyedSends:
    """Make what answers repeats."""
    return KeyedSends(
        memory(store, disk, metrics=metrics),
        store=store,
        qid_prefix="pyddmq_broker-0_",
        broker_name="broker-0",
    )
