"""What lies in a backlog: every figure against one counted by hand, from a real store's files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from broker.format.properties import encode_properties
from lag.report.page.backlog import age_bins, age_names
from pyddmq.broker import Put, StoreOptions, open_store

COUNT = 300


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Write two queues of 150 messages with keys, tags and ids; two ids are there again. g committed 100 of queue 0."""
    folder = tmp_path_factory.mktemp("store")
    store = open_store(str(folder), options=StoreOptions(segment_bytes=1 << 20))
    topic = store.create_topic("permits", 2)
    puts = []
    for number in range(COUNT):
        unique = f"id-{number - 2 if number in (298, 299) else number}"
        body = json.dumps({"case": f"c{number % 7}"}).encode().ljust(400 if number < 50 else 20)
        block = encode_properties({"KEYS": f"k{number % 4}", "TAGS": f"t{number % 2}", "UNIQ_KEY": unique})
        puts.append(Put(topic, number % 2, body, block, unique_key=unique.encode()))
    store.append(puts, born_ms=1, born_host=b"\x7f\0\0\1\0\0\0\0")
    store.close()
    (folder / "config").mkdir(exist_ok=True)
    # As RocketMQ writes it: keys that are numbers have no quotes.
    offsets = '{"offsetTable":{"permits@g":{0:100},"permits@h":{0:150,1:150}}}'
    (folder / "config" / "consumerOffset.json").write_text(offsets)
    return str(folder)


@pytest.fixture(scope="module")
def made(spark: Any, shipped: Any, store: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Count g's, of whose queue 1 ten offsets are finished above 20; half an hour later."""
    from lag.spark.jobs.backlog import BacklogOptions, make_backlog
    from lag.spark.jobs.positions import positions
    from lag.spark.sources.store_files import StoreFiles

    progress = tmp_path_factory.mktemp("progress") / "p.json"
    progress.write_text(json.dumps([["g", "permits", 1, 20, [[10, 22], [30, 38]]]]))
    found = positions(store, ["g"], None, str(progress))
    read_ms = (StoreFiles(store).stored_ms("permits", 1, 149, 150) or 0) + 1_800_000
    options = BacklogOptions(data=store, positions=found, read_ms=read_ms, order_by="$.case", top=5)
    return make_backlog(spark, options)


def of(made: Any, kind: str) -> dict[str, int]:
    """Return messages by name."""
    return {row.name: row.messages for row in made.rows if row.kind == kind}


def test_positions_are_those_of_the_store_and_what_was_finished(store: str, tmp_path: Path) -> None:
    """Groups without a backlog are left out; a queue without an offset counts whole; wrong names are told."""
    from broker.errors import StoreUnreadable
    from lag.spark.jobs.positions import positions
    from lag.spark.sources.options import OptionRefused

    assert [tuple(each) for each in positions(store)] == [
        ("g", "permits", 0, 100, 150, ()),
        ("g", "permits", 1, 0, 150, ()),
    ]
    assert positions(store, topics=["others"]) == []
    with pytest.raises(OptionRefused, match=r"group 'x' has no offset in .*; groups with offsets: g, h"):
        positions(store, ["x"])
    (tmp_path / "p.json").write_text("{}")
    (tmp_path / "q.json").write_text("[[1]]")
    assert len(positions(store, progress=str(tmp_path / "p.json"))) == 2
    with pytest.raises(OptionRefused, match="is not a list of"):
        positions(store, progress=str(tmp_path / "q.json"))
    with pytest.raises(StoreUnreadable, match="is not a store"):
        positions(str(tmp_path))


def test_figures_are_those_counted_by_hand(made: Any) -> None:
    """Queues, ages, sizes, keys, tags, order keys of bodies, repeats."""
    waiting = [number for number in range(COUNT) if number % 2 == 0 and number >= 200]
    waiting += [n for n in range(COUNT) if n % 2 and n // 2 >= 20 and n // 2 not in (20, 21, *range(30, 38))]

    assert of(made, "queue") == {"permits / 0": 50, "permits / 1": 120}
    assert {row.name: row.detail for row in made.rows if row.kind == "queue"}["permits / 1"] == "20 to 150, 10 finished"
    for kind, letter, count in (("key", "k", 4), ("tag", "t", 2)):
        names = [f"{letter}{number % count}" for number in waiting]
        assert of(made, kind) == {each: names.count(each) for each in names}
    cases = [f"c{number % 7}" for number in waiting]
    assert of(made, "order_key").items() <= {each: cases.count(each) for each in cases}.items()
    assert len(of(made, "order_key")) == 5, "no more than were asked for"
    assert of(made, "duplicate") == {"id-296": 1, "id-297": 1}
    assert of(made, "missing") == {}
    large = sum(number < 50 for number in waiting)
    assert of(made, "size")["256 B to 1 KiB"] == large > 0
    assert sum(of(made, "size").values()) == sum(of(made, "age").values()) == len(waiting) == 170
    assert sum(row.bytes for row in made.rows if row.kind == "queue") == sum(
        row.bytes for row in made.rows if row.kind == "tag"
    )


def test_ages_fill_a_report(made: Any) -> None:
    """In its bins; of a group without a backlog there are none."""
    bins = age_bins(made, "g")
    assert len(bins) == len(age_names())
    assert {each.from_seconds: each.messages for each in bins if each.messages} == {600: 170}
    assert age_bins(made, "h") == []


def test_record_that_is_not_whole_is_told(spark: Any, shipped: Any, store: str, tmp_path: Path) -> None:
    """As missing: it is counted nowhere else. The whole program, to a file."""
    import shutil

    from lag.spark.jobs.backlog_program import main

    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    log = next((copy / "commitlog").iterdir())
    data = bytearray(log.read_bytes())
    data[data.index(b"id-250")] ^= 1
    log.write_bytes(data)
    out = tmp_path / "out.json"
    assert main(["--data", str(copy), "--format", "json", "--out", str(out), "--top", "3"]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["name"], row["messages"]) for row in rows if row["kind"] == "missing"] == [("permits / 0", 1)]
    assert main(["--data", str(tmp_path)]) == 2
