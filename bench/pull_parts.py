"""What a pull with acks costs by its parts, in one process: `python -m bench.pull_parts [--batch N] [--parked] ...`.

The load of the other benchmarks (1 KiB bodies, 12-byte keys, one tag, two properties), stored on a simulated disk, is
pulled in order per key over a connection without a socket; each pull carries the acks of the one before. System calls
and the loop are left out. Microseconds of processor time per message, the best of some passes. `--cold` empties the
caches of the processor before each request, which is what a node finds that waited for its client. `--parked` has each
pull wait until its messages are stored: `wake` is from there to the reply, without what the other parts are of it.
"""

from __future__ import annotations

import argparse
import asyncio
import zlib
from random import Random
from typing import Any

import structlog

from actions.registry import Registry
from bench.clients.compact import Pulled, pull_frame, scan_pull_reply
from bench.clients.load import PROPERTIES, TAG, body_of, key_of
from bench.watch import Watch
from broker.features import ALL
from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.options import StoreOptions
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.runtime.steps import run_now
from broker.store import Store
from conf.models import GroupConfig
from proxy.port.accepting import ServerLimits
from proxy.port.connection import Connection
from proxy.port.server import Commons, ThriftServer
from proxy.services import consumer_service
from proxy.services.consumer_service import ConsumerService
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.fakes.access import open_guard
from upstream.delivery.group import ConsumerGroup
from upstream.embedded.broker import EmbeddedBroker
from upstream.embedded.queues import EmbeddedQueues
from upstream.group_parts import NodeSeams
from upstream.progress.progress import Progress

MESSAGES = 4_800
PASSES = 5
PARTS = ("scan", "acks", "wake", "read ahead", "take", "reply", "journal", "rest")
_GROUP = "bench"
_SCAN = "scan_pull"
_BATCH = 32
_LINGER_MS = 1_000
_CACHES_BYTES = 16 << 20
_FRAME_LENGTH_BYTES = 4


class _Peer(asyncio.Transport):
    """The far end of the connection."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False


def measure(
    batch: int, passes: int = PASSES, *, messages: int = MESSAGES, parked: bool = False, cold: bool = False
) -> dict[str, float]:
    """Return microseconds per message by part; with `parked` each pull waits for its messages."""
    best: dict[str, float] = {}
    scan = vars(consumer_service)[_SCAN]
    for _ in range(passes):
        try:
            spent = _measure_once(batch, messages, b"x" * _CACHES_BYTES if cold else b"", parked=parked)
        finally:
            setattr(consumer_service, _SCAN, scan)
        if not best or sum(spent.values()) < sum(best.values()):
            best = spent
    return best


def _measure_once(batch: int, messages: int, caches: bytes, *, parked: bool) -> dict[str, float]:
    store, clock, progress, group, server = _node(0 if parked else messages + _BATCH)
    service = server.service_of_pulls
    peer, connection, watch = _Peer(), Connection(server), Watch(PARTS)
    connection.connection_made(peer)
    watch.watch(consumer_service, _SCAN, "scan")
    watch.watch(service, "_apply", "acks")
    watch.watch(vars(group)["_buffer"], "take", "take")
    watch.watch(service, "_send", "reply")
    watch.watch(vars(service)["_lingers"], "send", "reply")
    watch.watch(progress, "flush", "journal")
    [subscription] = {group_queue.subscription for group_queue in group.group_queues()}
    watch.watch(subscription, "pump", "read ahead")
    [listener] = store.topics["bench"].listeners
    store.topics["bench"].listeners[:] = [lambda: watch.run("wake", listener)]
    held: list[Pulled] = []
    count = 0
    while count < messages:
        request = pull_frame(_GROUP.encode(), batch, _LINGER_MS, held)
        zlib.crc32(caches)
        watch.run("rest", connection.data_received, request)
        watch.run("rest", server.run_pass)
        watch.run("rest", progress.flush)
        if parked:
            _store_batch(store, clock, count, batch)
            zlib.crc32(caches)
            store.flush()
        watch.run("rest", server.flush)
        pulled = scan_pull_reply(peer.written.pop()[_FRAME_LENGTH_BYTES:])
        assert pulled is not None, "there are messages"
        held = [pulled]
        count += len(pulled.bodies)
    store.close()
    return {part: seconds / count * 1e6 for part, seconds in watch.spent.items() if parked or part != "wake"}


class _Server(ThriftServer):
    """A consumer port whose service can be reached."""

    service_of_pulls: ConsumerService


def _store_batch(store: Store, clock: ManualClock, number: int, count: int) -> None:
    """Append messages to one queue, the first of them with that number."""
    topic = store.topics["bench"]
    puts = []
    for each in range(number, number + count):
        pairs = [(b"KEYS", key_of(each)), (b"TAGS", TAG), *PROPERTIES]
        block = encode_properties([(name.decode(), value.decode()) for name, value in pairs])
        puts.append(Put(topic, number // count % 8, body_of(), block, TAG))
    store.append(puts, born_ms=clock.wall_ms(), born_host=bytes(8), atomic=True)


def _node(messages: int) -> tuple[Store, ManualClock, Progress, ConsumerGroup, _Server]:
    clock, metrics, disk = ManualClock(), Metrics(), SimDisk()
    scheduler = ManualScheduler(clock)
    store = Store.open(
        "/bench", options=StoreOptions(), features=ALL, disk=disk, clock=clock, random=Random(1), metrics=metrics
    )
    store.create_topic("bench", 8)
    for at in range(0, messages, _BATCH):
        _store_batch(store, clock, at, _BATCH)
        store.flush()
    progress = run_now(
        Progress.opening(
            "/bench",
            queues=EmbeddedQueues(store),
            runtime=runtime_of(disk, clock, metrics=metrics, scheduler=scheduler),
        )
    )
    subscription = {
        "topic": "bench",
        "orderKey": "KEY",
        "actions": ["Async", "PullServer"],
        "maxPullBatchSize": _BATCH,
        "concurrency": 4096,
        "timeout": 60_000,
    }
    runtime = runtime_of(disk, clock, random=Random(1), metrics=metrics, scheduler=scheduler)
    group = ConsumerGroup(
        GroupConfig.model_validate({"group": _GROUP, "topics": [subscription]}),
        node=NodeSeams(
            broker=EmbeddedBroker(store, runtime),
            retry_queues=EmbeddedBroker(store, runtime),
            progress=progress,
            runtime=runtime,
        ),
        make_actions=Registry().make,
        qid_prefix="c_b_",
    )
    server = _Server(
        "consumer",
        {},
        limits=ServerLimits(),
        commons=Commons(
            runtime=runtime_of(disk, clock, metrics=metrics, scheduler=scheduler),
            request_turn=lambda: None,
        ),
    )
    runtime = runtime_of(disk, clock, metrics=metrics, scheduler=scheduler)
    server.service_of_pulls = ConsumerService(
        {_GROUP: group},
        linger_ms_max=_LINGER_MS,
        acks_refused=lambda: progress.failed,
        budget=server.budget,
        guard=open_guard(runtime),
        runtime=runtime,
    )
    server.serve(server.service_of_pulls.handlers(), server.service_of_pulls.line)
    group.start()
    return store, clock, progress, group, server


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.pull_parts", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--batch", type=int, default=_BATCH, help="messages per pull")
    parser.add_argument("--parked", action="store_true", help="each pull waits until its messages are stored")
    parser.add_argument("--cold", action="store_true", help="with cold caches of the processor")
    options = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    found = measure(options.batch, parked=options.parked, cold=options.cold)
    parts = ", ".join(f"{name} {value:.1f}" for name, value in found.items())
    print(f"pull, batch {options.batch}, us per message: {parts}")
    print(f"together {sum(found.values()):.1f}")


if __name__ == "__main__":
    main()
