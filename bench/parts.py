"""What a publish costs by its parts, in one process: `python -m bench.parts [--batch N]`.

The load of the other benchmarks (1 KiB bodies, 12-byte keys, one tag, two properties) is scanned, checked, encoded,
staged, written to a simulated disk and indexed; sockets, loop and replies are left out. Microseconds of processor time
per message, the best of some passes: small enough to see what a change in one part does on a machine with other work.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from random import Random
from time import process_time

import structlog

from bench.clients.compact import Message, publish_frame
from bench.clients.load import PROPERTIES, TAG, body_of, key_of
from broker.features import ALL
from broker.log.encoder import Stamp
from broker.log.put import Put
from broker.options import StoreOptions
from broker.runtime.bundle import runtime_of
from broker.runtime.metrics import Metrics
from broker.store import Store
from proxy.services.message_checks import MessageChecks
from proxy.services.topic_port import TopicPort
from proxy.wire.call import parse_call
from proxy.wire.scanning.scan import scan_send, scan_send_batch
from pyddmq.testing import ManualClock, SimDisk

MESSAGES = 960
PASSES = 30
PARTS = ("scan", "check", "measure", "encode", "stage", "flush")
HOST = bytes(8)
_FRAME_LENGTH_BYTES = 4


def frames(batch: int) -> list[bytes]:
    """Return publishes of `batch` messages each, without the frames' lengths."""
    return [
        publish_frame([Message(b"bench", key_of(n), body_of(), TAG, PROPERTIES) for n in range(at, at + batch)])[
            _FRAME_LENGTH_BYTES:
        ]
        for at in range(0, MESSAGES - MESSAGES % batch, batch)
    ]


def measure(batch: int, passes: int = PASSES) -> dict[str, float]:
    """Return microseconds per message by part."""
    clock, metrics = ManualClock(), Metrics()
    store = Store.open(
        "/bench", options=StoreOptions(), features=ALL, disk=SimDisk(), clock=clock, random=Random(1), metrics=metrics
    )
    topic = store.create_topic("bench", 8)
    checks = MessageChecks(
        {b"bench": TopicPort(topic, None, metrics)},
        store=store,
        runtime=runtime_of(SimDisk(), clock, random=Random(1)),
        body_bytes_max=4 << 20,
        auto_create=lambda _: None,
    )
    requests = frames(batch)
    best: dict[str, float] = {}
    for _ in range(passes):
        spent: dict[str, float] = {}
        for frame in requests:
            _publish(frame, batch > 1, store, checks, spent)
        before = process_time()
        while store.index.step():
            pass
        spent["index"] = process_time() - before
        for name, seconds in spent.items():
            value = seconds / (len(requests) * batch) * 1e6
            best[name] = min(value, best.get(name, value))
    return best


def _publish(frame: bytes, many: bool, store: Store, checks: MessageChecks, spent: dict[str, float]) -> None:
    marks = [process_time()]
    call = parse_call(frame)
    messages = scan_send_batch(call).messages if many else [scan_send(call).message]
    marks.append(process_time())
    puts: list[Put] = []
    stamp = Stamp(1, HOST, 1_700_000_000_000)
    checks.check(messages, puts, [])
    marks.append(process_time())
    measured = store._encoder.measure(puts, stamp, atomic=many)
    marks.append(process_time())
    physicals = store.segment_space.reserve(puts, measured.sizes, atomic=many)
    buffers, _, flags = store._encoder.encode(puts, measured, physicals, stamp, store.commit.touched)
    marks.append(process_time())
    tails, sizes, _ = measured
    store.index.feed.add(tails, physicals, sizes, store_ms=stamp.store_ms, flags=flags)
    store.commit.stage(physicals, sizes, buffers, None)
    marks.append(process_time())
    store.flush()
    marks.append(process_time())
    for name, (before, after) in zip(PARTS, pairwise(marks), strict=True):
        spent[name] = spent.get(name, 0.0) + after - before


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.parts", description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--batch", type=int, default=32, help="messages per request")
    batch = parser.parse_args().batch
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(40))
    found = measure(batch)
    print(
        f"publish, batch {batch}, us per message: " + ", ".join(f"{name} {value:.1f}" for name, value in found.items())
    )
    print(f"together {sum(found.values()):.1f}")


if __name__ == "__main__":
    main()
