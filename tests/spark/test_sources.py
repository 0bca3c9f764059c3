"""The data sources over real files: what Spark reads is what was written, and what is missing is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker.format.properties import encode_properties
from broker.runtime.disk import RealDisk
from lag.journal.reader import JournalReader, QueueRow
from lag.journal.writer import JournalOrigin, JournalWriter, WriterLimits
from lag.samples import QueueSample
from pyddmq.broker import Put, StoreOptions, open_store

START_MS = 1_714_950_000_000
pytestmark = pytest.mark.usefixtures("shipped")


def write_journal(folder: Path, *, node: str = "n1", snapshots: int = 50, queues: int = 6) -> list[QueueSample]:
    """Write a journal of several files; returns the samples of queue 0."""
    limits = WriterLimits(file_bytes=600, free_bytes_min=0)
    journal = JournalWriter(RealDisk(), str(folder), JournalOrigin(cluster="c", node=node, epoch=2**64 - 5), limits)
    first = []
    for number in range(snapshots):
        now = START_MS + number * 10_000
        samples = [
            QueueSample(
                time_ms=now + queue,
                start=0,
                end=1_000 + number * (queue + 1),
                committed=None if queue == 5 else 900 + number,
                held_key="k" if queue == 1 else None,
                matched=0.25 if queue == 2 else None,
                paused=queue == 3,
            )
            for queue in range(queues)
        ]
        first.append(samples[0])
        rows = [(("g" if queue < 4 else "other", "t", queue), sample) for queue, sample in enumerate(samples)]
        journal.write(now, rows)
    journal.close(START_MS + snapshots * 10_000)
    return first


class TestLag:
    """`pyddmq_lag`."""

    def test_rows_are_the_samples_that_were_written(self, spark: Any, tmp_path: Path) -> None:
        """All columns of all rows of several files, as the reader without Spark gives them."""
        write_journal(tmp_path / "a")
        rows = [
            each
            for each in JournalReader(RealDisk(read_only=True), str(tmp_path / "a")).read()
            if isinstance(each, QueueRow)
        ]
        found = spark.read.format("pyddmq_lag").option("path", str(tmp_path / "a")).load()
        got = {(row.sequence, row.queue): row.asDict() for row in found.collect()}

        assert len(rows) == len(got) == 300
        for row in rows:
            mine = got[row.sequence, row.key.queue]
            assert (mine["cluster"], mine["node"], mine["group"], mine["topic"]) == (
                row.key.cluster,
                row.key.node,
                row.key.group,
                row.key.topic,
            )
            assert (mine["tier"], mine["row_samples"], mine["epoch"]) == ("raw", 1, "fffffffffffffffb")
            for name in ("time_ms", "start", "end", "committed", "held_key", "matched", "paused", "end_ms"):
                assert mine[name] == getattr(row.sample, name), name

    def test_filters_and_columns_are_pushed_down(self, spark: Any, tmp_path: Path) -> None:
        """The answer is the same; the plan says that the source was told."""
        write_journal(tmp_path / "a")
        plain = spark.read.format("pyddmq_lag").option("path", str(tmp_path / "a")).load()
        pushed = spark.read.format("pyddmq_lag").option("path", str(tmp_path / "a")).option("pushdown", "true").load()
        counts = []
        for each in (plain, pushed):
            asked = each.where(f"time_ms >= {START_MS + 100_000} and time_ms < {START_MS + 200_000} and `group` = 'g'")
            counts.append(asked.select("queue", "end").count())
        assert counts == [40, 40]

    def test_folders_of_several_nodes_are_one_table(self, spark: Any, tmp_path: Path) -> None:
        """With commas between them."""
        for node in ("n1", "n2"):
            write_journal(tmp_path / node, node=node, snapshots=3)
        path = f"{tmp_path / 'n1'}, {tmp_path / 'n2'}"
        found = spark.read.format("pyddmq_lag").option("path", path).load().groupBy("node").count().collect()
        assert sorted((row["node"], row["count"]) for row in found) == [("n1", 18), ("n2", 18)]

    def test_damage_costs_its_file_and_is_told(self, spark: Any, tmp_path: Path) -> None:
        """A flipped byte and a foreign file: the other files' rows are there, and `rows=gaps` names both."""
        write_journal(tmp_path / "a")
        files = sorted((tmp_path / "a").iterdir())
        assert len(files) > 2
        data = bytearray(files[1].read_bytes())
        data[-20] ^= 1
        files[1].write_bytes(data)
        (tmp_path / "a" / "notes.txt").write_text("hello")
        reading = spark.read.format("pyddmq_lag").option("path", str(tmp_path / "a"))

        count = reading.load().count()
        gaps = {Path(row.path).name: row.kind for row in reading.option("rows", "gaps").load().collect()}
        assert 0 < count < 300
        assert gaps["notes.txt"] == "foreign"
        assert gaps[files[1].name] == "damaged"

    @pytest.mark.parametrize(
        ("options", "sentence"),
        [
            ({}, "option 'path' is missing: the folder of a lag journal"),
            ({"path": "/x", "since": "yesterday"}, "invalid option 'since' 'yesterday'; write 2024-05-06T07:08:09Z"),
            ({"path": "/x", "rows": "all"}, "invalid option 'rows' 'all'; use one of samples, events, gaps"),
        ],
    )
    def test_wrong_options_are_refused_with_what_is_right(
        self, spark: Any, options: dict[str, str], sentence: str
    ) -> None:
        """Before anything is read."""
        with pytest.raises(Exception, match="OptionRefused") as refused:
            spark.read.format("pyddmq_lag").options(**options).load().count()
        assert sentence in str(refused.value)

    def test_folder_that_is_not_there_has_no_rows(self, spark: Any, tmp_path: Path) -> None:
        """A node that recorded nothing yet."""
        assert spark.read.format("pyddmq_lag").option("path", str(tmp_path / "none")).load().count() == 0


class TestMessages:
    """`pyddmq_messages` over a store's files."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> Path:
        """Write a store of two queues with messages of several sizes."""
        store = open_store(str(tmp_path / "store"), options=StoreOptions(segment_bytes=1 << 20))
        topic = store.create_topic("permits", 2)
        puts = [
            Put(topic, number % 2, b"body-%d" % number, encode_properties({"KEYS": f"k{number % 7}", "TAGS": "even"}))
            for number in range(300)
        ]
        store.append(puts, born_ms=START_MS, born_host=b"\x7f\0\0\1\0\0\0\0")
        store.close()
        return tmp_path / "store"

    def test_messages_are_those_of_the_store(self, spark: Any, store: Path) -> None:
        """Each once, in each of its columns, whatever the partitions."""
        reading = spark.read.format("pyddmq_messages").option("path", str(store))
        for size in ("1000", "1000000000"):
            rows = reading.option("partitionBytes", size).load().orderBy("queue", "offset").collect()
            assert [(row.queue, row.offset) for row in rows] == [(q, o) for q in (0, 1) for o in range(150)]
            assert {row.topic for row in rows} == {"permits"}
            assert [bytes(row.body) for row in rows[:3]] == [b"body-0", b"body-2", b"body-4"]
            assert [row.keys for row in rows[:3]] == ["k0", "k2", "k4"]
            assert rows[0].properties["TAGS"] == rows[0].tags == "even"
            assert all(row.stored_ms > 0 and row.size > len(row.body) for row in rows)

    def test_ranges_are_cut_by_options_and_filters(self, spark: Any, store: Path) -> None:
        """By queue, offset and time, pushed down or not."""
        for pushdown in ("true", "false"):
            reading = spark.read.format("pyddmq_messages").option("path", str(store)).option("pushdown", pushdown)
            rows = reading.load()
            assert rows.where("queue = 1 and offset >= 140").count() == 10
            middle = rows.where("queue = 0 and offset = 75").first().stored_ms
            assert rows.where(f"stored_ms >= {middle}").count() == reading.option("since", str(middle)).load().count()

    def test_torn_record_and_flipped_byte_give_no_row(self, spark: Any, store: Path) -> None:
        """What is not whole is never shown; all else is."""
        log = next((store / "commitlog").iterdir())
        data = bytearray(log.read_bytes())
        at = data.index(b"body-100")
        data[at] ^= 1
        log.write_bytes(data)
        rows = spark.read.format("pyddmq_messages").option("path", str(store)).load()
        assert rows.count() == 299
        assert rows.where("queue = 0 and offset = 50").count() == 0

    def test_unknown_topic_and_foreign_folder_are_told(self, spark: Any, store: Path, tmp_path: Path) -> None:
        """With what is there."""
        reading = spark.read.format("pyddmq_messages").option("path", str(store))
        with pytest.raises(Exception, match=r"there is no topic 'permit' in .*; it has permits"):
            reading.option("topic", "permit").load().count()
        with pytest.raises(Exception, match="is not a store: it has no folder commitlog"):
            spark.read.format("pyddmq_messages").option("path", str(tmp_path)).load().count()

    def test_backlog_of_a_group_begins_where_it_committed(self, spark: Any, store: Path) -> None:
        """As `config/consumerOffset.json` has it; a queue without a commit counts whole."""
        (store / "config").mkdir(exist_ok=True)
        (store / "config" / "consumerOffset.json").write_text('{"offsetTable":{"permits@g":{"0":148}}}')
        rows = spark.read.format("pyddmq_messages").option("path", str(store)).option("group", "g").load()
        assert {row["queue"]: row["count"] for row in rows.groupBy("queue").count().collect()} == {0: 2, 1: 150}
