"""Every form of the Hdfs sink at a real HDFS, over WebHDFS; Hadoop itself reads what was written."""

from __future__ import annotations

import io
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import need_module
from tests.patient import Producer, until
from tests.running_node import RunningNode
from tests.sinks.servers import HdfsServer

pytestmark = pytest.mark.long

YAML = """
topics: {{orders: {{queues: 1}}}}
groups:
  - group: archive
    topics:
      - topic: orders
        actions: [Async, Hdfs]
        options:
          Hdfs:
            urls: ["{url}"]
            rootPath: {root}
            filePath: "${{group}}/${{topic}}"
            userName: {user}
            fileType: {form}
            flushMs: 20
            {more}
"""
COUNT = 60


def published(hdfs: HdfsServer, data: Path, form: str, more: str = "") -> tuple[str, bytes]:
    """Have a node write messages in two batches; returns path and bytes of the one file there is at the end."""
    root = f"/forms/{form}"
    yaml = YAML.format(url=hdfs.url, root=root, user=hdfs.user, form=form, more=more)
    with RunningNode(yaml, data, drain_seconds=60) as node, Producer(node.producer) as producer:
        for number in range(COUNT):
            producer.send("orders", b'{"n":%d}' % number, key=f"k{number}")
            if number == COUNT // 2 and form != "parquet":
                until(lambda: any(hdfs.read(each) for each in hdfs.files(root)), "the first flush")
        stats = partial(node.node.in_force.groups["archive"].stats, details_max=0)
        if form != "parquet":
            until(lambda: not node.call(stats).topics[0].lag, "all to be answered")
    [path] = hdfs.files(root)
    folder, _, name = path.rpartition("/")
    assert folder == f"{root}/archive/orders"
    assert name.startswith("archive.orders.")
    return path, hdfs.read(path)


def test_lines_of_json_have_the_whole_message(hdfs: HdfsServer, tmp_path: Path) -> None:
    """In the order of the queue, over several appends."""
    _, raw = published(hdfs, tmp_path, "json")
    lines = [json.loads(line) for line in raw.splitlines()]
    assert [line["body"]["n"] for line in lines] == list(range(COUNT))
    assert [line["key"] for line in lines] == [f"k{number}" for number in range(COUNT)]


def test_text_has_a_body_per_line(hdfs: HdfsServer, tmp_path: Path) -> None:
    """As DDMQ wrote it (R64)."""
    _, raw = published(hdfs, tmp_path, "text")
    assert raw.decode() == "".join(f'{{"n":{number}}}\n' for number in range(COUNT))


def test_sequence_file_is_read_by_hadoop(hdfs: HdfsServer, tmp_path: Path) -> None:
    """Key and body of each record, as `hadoop fs -text` shows them."""
    path, _ = published(hdfs, tmp_path, "sequence")
    records = [line.split("\t") for line in hdfs.text(path).splitlines()]
    assert [bytes.fromhex(raw.replace(" ", "")) for _, raw in records] == [b'{"n":%d}' % each for each in range(COUNT)]
    assert [key for key, _ in records] == [f"k{number}" for number in range(COUNT)]


def test_parquet_is_written_whole(hdfs: HdfsServer, tmp_path: Path) -> None:
    """The node's end closes the file; pyarrow reads it."""
    need_module("pyarrow", "pip install 'pyddmq[files]'")
    import pyarrow.parquet

    read_table: Any = pyarrow.parquet.read_table

    path, raw = published(hdfs, tmp_path, "parquet")
    rows = read_table(io.BytesIO(raw)).to_pylist()
    assert path.endswith(".parquet")
    assert [json.loads(row["body"])["n"] for row in rows] == list(range(COUNT))
