"""How fast a store is recovered: `python -m bench.recovery [--records N] [--folder DIR]`.

Records of 1 KiB bodies with key, tag and two properties, as the other benchmarks use. `scan` begins at the checkpoint
of an empty store: all is scanned, each record gets its unit. `rebuild` has no checkpoint: every queue file is made
anew. `clean` opens a store that was closed. The files are in the page cache; rates are per second of processor time.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from random import Random

from broker.features import ALL
from broker.format.properties import encode_properties
from broker.log.put import Put
from broker.options import StoreOptions
from broker.runtime.disk import RealDisk
from broker.runtime.metrics import Metrics
from broker.runtime.seams import SystemClock
from broker.store import Store

OPTIONS = StoreOptions(segment_bytes=64 << 20, queue_file_units=300_000, flush="async")
QUEUES = 8


def opened(root: Path) -> Store:
    """Open the store."""
    return Store.open(
        str(root),
        options=OPTIONS,
        features=ALL,
        disk=RealDisk(),
        clock=SystemClock(),
        random=Random(1),
        metrics=Metrics(),
    )


def fill(root: Path, records: int) -> None:
    """Write a store and leave it as a kill would, with the checkpoint of the empty store."""
    store = opened(root)
    topic = store.create_topic("permits", QUEUES)
    store.checkpointer.write(last_record=store.commit.last_visible, store_ms=store.store_ms)
    body = bytes(1024)
    batch = 500
    for start in range(0, records, batch):
        puts = [
            Put(
                topic,
                n % QUEUES,
                body,
                encode_properties({"TAGS": "a", "KEYS": f"case-{n % 1000:07d}", "p": "1", "q": "2"}),
            )
            for n in range(start, min(start + batch, records))
        ]
        store.append(puts, born_ms=0, born_host=bytes(8))
        store.flush()
    store.abandon()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=300_000)
    parser.add_argument("--folder", help="where the data goes; a temporary folder by default")
    options = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="pyddmq-recovery-", dir=options.folder))
    try:
        fill(root, options.records)
        print(f"{'':10}{'seconds':>10}{'CPU':>8}{'records/s':>12}{'MB/s':>8}")
        for name in ("scan", "rebuild", "clean"):
            if name == "rebuild":
                (root / "pyddmq/checkpoint.json").unlink()
                (root / "abort").write_text("0")
            began, cpu_began = time.perf_counter(), time.process_time()
            store = opened(root)
            seconds, cpu = time.perf_counter() - began, time.process_time() - cpu_began
            facts = store.recovery
            megabytes = (facts.end - facts.scanned_from) / 1e6
            print(f"{name:10}{seconds:10.3f}{cpu:8.3f}{facts.records / cpu:12,.0f}{megabytes / cpu:8,.0f}", flush=True)
            store.close()
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
