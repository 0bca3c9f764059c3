"""What the lag journal costs: bytes and processor time per queue and snapshot, and of the minutes made of them.

    python -m bench.lag_journal [--queues 1000] [--moving 0.3]

Queues of which a share moves steadily, as those of consumers that keep up or lag behind. The others have no traffic:
once nobody asks for them, and once clients do, so that one moment of theirs changes each time. Files are real.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from random import Random

from broker.runtime.disk import RealDisk
from broker.runtime.steps import StepsEnd, step
from lag.journal.columns import Key
from lag.journal.files import Tier
from lag.journal.reader import JournalReader, QueueRow
from lag.journal.tiers import TierLimits, Tiers
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.samples import QueueSample

INTERVAL_MS = 10_000
BEGIN_MS = 1_769_997_600_000
"""A full hour."""
Rows = list[tuple[Key, QueueSample]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was measured.

    Attributes:
        queue_bytes: Bytes per queue and snapshot, the first snapshot of the hour left out.
        idle_bytes: Bytes that a queue without a change adds to a snapshot.
        hour_bytes: Bytes of a file of an hour, per queue and snapshot: with its whole rows.
        write_ms: Processor time of one snapshot: encode and write.
        core_percent: Of one core, for a snapshot every 10 s.
        minute_bytes: Bytes per queue and minute of the file of minutes.
        rollup_ms: Processor time of that file, for an hour.
        step_us_max: The longest step of it.
        read_rows: Samples that are read per second.
        source_rows: Rows that the source `pyddmq_lag` makes per second, all columns, before Spark has them; None: there
            is no PySpark.
    """

    queue_bytes: float
    idle_bytes: float
    hour_bytes: float
    write_ms: float
    core_percent: float
    minute_bytes: float
    rollup_ms: float
    step_us_max: float
    read_rows: float
    source_rows: float | None


def moved(rows: Rows, random: Random, time_ms: int, share: float, *, polled: bool) -> Rows:
    """Return the next snapshot."""
    found: Rows = []
    for index, (key, sample) in enumerate(rows):
        # Read in slices of a millisecond, some 30 queues each.
        now = time_ms + index // 30
        if index % 100 >= share * 100:
            found.append((key, replace(sample, time_ms=now, asked_ms=now - random.randrange(2000) if polled else None)))
            continue
        end = (sample.end or 0) + random.randrange(3000)
        lag = max(0, (sample.end or 0) - (sample.committed or 0) + random.randrange(-30, 31))
        started = end - lag + min(lag, 16)
        found.append(
            (
                key,
                replace(
                    sample,
                    time_ms=now,
                    end=end,
                    committed=end - lag,
                    started=started,
                    in_flight=min(lag, 16),
                    holders=2,
                    committed_ms=now - lag * 5 - random.randrange(20) if lag else None,
                    started_ms=now - lag * 4 - random.randrange(20) if lag else None,
                    end_ms=now - random.randrange(20),
                    moved_ms=now - random.randrange(50),
                    answered_ms=now - random.randrange(50),
                    asked_ms=now - random.randrange(2000),
                ),
            )
        )
    return found


def first_rows(queues: int, random: Random) -> Rows:
    """Return the queues as they are at the begin."""
    return [
        (
            (f"group-{index // 50}", f"topic-{index // 8}", index % 8),
            QueueSample(time_ms=0, start=0, end=random.randrange(1 << 30), committed=0, start_ms=BEGIN_MS - 86_400_000),
        )
        for index in range(queues)
    ]


def begun(queues: int, random: Random) -> Rows:
    """Return queues of which all was consumed but a little."""
    return [
        (key, replace(sample, committed=(sample.end or 0) - random.randrange(100)))
        for key, sample in first_rows(queues, random)
    ]


def measure(folder: str, *, queues: int, snapshots: int, moving: float, polled: bool) -> Figures:
    """Write, coarsen and read a journal of one hour or less.

    Args:
        folder: Where; empty.
        queues: In each snapshot.
        snapshots: 10 s apart.
        moving: Share of them that moves.
        polled: Clients ask for those that do not.
    """
    random = Random(7)
    disk = RealDisk()
    writer = JournalWriter(
        disk, folder, JournalOrigin(cluster="c", node="n", epoch=1), WriterLimits(file_bytes=1 << 30)
    )
    rows = begun(queues, random)
    sizes, seconds = [], 0.0
    for number in range(snapshots):
        time_ms = BEGIN_MS + number * INTERVAL_MS
        rows = moved(rows, random, time_ms, moving, polled=polled)
        before, start = writer.written_bytes, time.process_time()
        writer.begin(time_ms)
        writer.add(rows)
        if not writer.end():
            raise OSError(f"the journal was not written: {writer.trouble}")
        seconds += time.process_time() - start
        sizes.append(writer.written_bytes - before)
    idle = _idle_bytes(writer, rows, BEGIN_MS + snapshots * INTERVAL_MS - 5000)
    writer.close(BEGIN_MS + snapshots * INTERVAL_MS - 4000)

    start = time.process_time()
    read = sum(isinstance(each, QueueRow) for each in JournalReader(disk, folder).read())
    reading = time.process_time() - start
    source_rows = _source_rows(folder)
    tiers = Tiers(disk, folder, TierLimits())
    start = time.process_time()
    longest = max(_timed(tiers, now_ms=BEGIN_MS + 2 * 3_600_000))
    rollup = time.process_time() - start
    made = [name for name in disk.list(folder) if name.startswith(Tier.MINUTE.name.lower())]
    minute_bytes = disk.open(f"{folder}/{made[0]}").size() / queues / max(snapshots * INTERVAL_MS // 60_000, 1)
    each_ms = seconds / snapshots * 1000
    return Figures(
        queue_bytes=sum(sizes[1:]) / len(sizes[1:]) / queues,
        idle_bytes=idle,
        hour_bytes=sum(sizes) / len(sizes) / queues,
        write_ms=each_ms,
        core_percent=each_ms / INTERVAL_MS * 100,
        minute_bytes=minute_bytes,
        rollup_ms=rollup * 1000,
        step_us_max=longest * 1e6,
        read_rows=read / reading,
        source_rows=source_rows,
    )


def _source_rows(folder: str) -> float | None:
    """Return how many rows per second of the processor a task of the source makes of a journal."""
    try:
        from lag.spark.sources.journal import JournalRows
        from lag.spark.sources.journal_rows import FIELDS
    except ImportError:
        return None
    import pyarrow as pa

    source = JournalRows({"path": folder}, "samples", pa.schema(list(FIELDS.items())))
    start = time.process_time()
    count: int = sum(batch.num_rows for part in source.partitions() for batch in source.read(part))
    return count / (time.process_time() - start)


def _idle_bytes(writer: JournalWriter, rows: Rows, time_ms: int) -> float:
    """Return what a queue without any change takes, in a snapshot in which none has one."""
    before = writer.written_bytes
    writer.write(
        time_ms, [(key, replace(sample, time_ms=time_ms + index // 30)) for index, (key, sample) in enumerate(rows)]
    )
    return (writer.written_bytes - before) / len(rows)


def _timed(tiers: Tiers, *, now_ms: int) -> list[float]:
    """Make a round; return what each step took, in seconds of the processor."""
    found: list[float] = []
    steps = tiers.round(now_ms, None)
    while True:
        start = time.process_time()
        if isinstance(step(steps), StepsEnd):
            return found
        found.append(time.process_time() - start)


def lines(name: str, figures: Figures) -> list[str]:
    """Return the figures as lines of a table."""
    return [
        f"| {name} | {figures.queue_bytes:.1f} | {figures.idle_bytes:.2f} | {figures.hour_bytes:.1f} | "
        f"{figures.write_ms:.1f} ms | {figures.core_percent:.3f} % | {figures.minute_bytes:.0f} | "
        f"{figures.rollup_ms / 1000:.1f} s | {figures.step_us_max / 1000:.1f} ms | "
        f"{figures.read_rows / 1000:.0f} k/s | "
        + ("-" if figures.source_rows is None else f"{figures.source_rows / 1000:.0f} k/s")
        + " |"
    ]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--moving", type=float, default=0.3)
    parser.add_argument("--snapshots", type=int, default=360)
    parser.add_argument("--folder", help="where the files are made; a temporary one when absent")
    given = parser.parse_args()
    print(
        "| queues | bytes | idle | with whole rows | snapshot | core | minute | hour's minutes | longest step | read | "
        "by Spark's source |"
    )
    print("| --- " * 11 + "|")
    for polled in (False, True):
        folder = tempfile.mkdtemp(dir=given.folder)
        try:
            figures = measure(
                f"{folder}/lag", queues=given.queues, snapshots=given.snapshots, moving=given.moving, polled=polled
            )
        finally:
            shutil.rmtree(folder)
        name = f"{given.queues}, {given.moving:.0%} move" + (", the others are polled" if polled else "")
        print("\n".join(lines(name, figures)))


if __name__ == "__main__":
    main()
