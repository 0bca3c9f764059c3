"""HDFS and HBase: the node is killed in the middle, the server is killed, the disk is full."""

from __future__ import annotations

import contextlib
import http.client
import json
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.servers.maven import Programs
from tests.sinks.lives import KEYS, Lives
from tests.sinks.servers import HBaseServer, HdfsServer

pytestmark = pytest.mark.long

TABLE = "killed"


ASK_SECONDS = 0.5
"""Between two counts: a reader can make a data node drop a replica that is being appended to (see `servers`)."""


def remembered(ask: Callable[[], int]) -> Callable[[], int]:
    """Return a count that is asked for now and then, and is the last one while the server does not respond."""
    last, at = 0, 0.0

    def asked() -> int:
        nonlocal last, at
        if time.monotonic() >= at + ASK_SECONDS:
            at = time.monotonic()
            with contextlib.suppress(OSError, http.client.HTTPException):
                last = ask()
        return last

    return asked


def numbers_in(server: HdfsServer, root: str) -> list[int]:
    """Numbers of the lines below a folder, file by file in the order of their names; open files too."""
    found = []
    for path in sorted(server.files(root), key=lambda each: each.rpartition("/")[2].lstrip(".").removesuffix(".open")):
        found += [json.loads(line)["body"]["n"] for line in server.read(path).splitlines()]
    return found


def lines_in(server: HdfsServer, root: str) -> int:
    """How many lines there are below a folder."""
    return sum(server.read(path).count(b"\n") for path in server.files(root))


def test_hdfs_has_each_message_once_after_kills_of_both_and_a_full_disk(
    hdfs_programs: Programs, tmp_path: Path
) -> None:
    """No line is lost, none is there twice, each key is in its order (D46)."""
    server = HdfsServer(tmp_path / "hdfs", hdfs_programs)
    options = {
        "urls": [server.url],
        "rootPath": "/killed",
        "filePath": "${topic}",
        "userName": server.user,
        "fileType": "json",
        "flushMs": 5,
        "rotateMessages": 100,
        "timeout": 10_000,
    }
    lives = Lives(tmp_path, "Hdfs", options, remembered(lambda: lines_in(server, "/killed")), life_max=100)
    with contextlib.closing(lives):
        lives.begin()
        lives.in_the_middle()
        lives.kill()

        lives.begin()
        lives.in_the_middle()
        server.kill()
        lives.is_away()
        server.start(room_bytes=1024 * 1024)
        lives.is_away()
        lives.kill()

        lives.begin()
        lives.is_away()
        server.kill()
        server.start()
        lives.in_the_middle()
        lives.finish()
    lives.check(numbers_in(server, "/killed"))
    assert not [each for each in server.files("/killed") if each.endswith(".open")]
    server.kill()


def test_hbase_has_each_message_once_after_kills_of_both_and_a_full_disk(
    hdfs: HdfsServer, hbase: HBaseServer, tmp_path: Path
) -> None:
    """Puts are there, appends and increments counted once, by their markers; each key is in its order (W59).

    The disk is that of the HDFS on which HBase stands: its log takes nothing more.
    """
    hbase.make_table(TABLE, d={}, m={"time_to_live": 86_400})
    options = {
        "hosts": [hbase.address],
        "transport": "framed",
        "onceFamily": "m",
        "tables": [
            {"table": TABLE, "row": "n-${$.n}", "columns": {"d:body": "${body}"}},
            {"table": TABLE, "row": "list-${key}", "operation": "append", "columns": {"d:bodies": "${body}\n"}},
            {"table": TABLE, "row": "count", "operation": "increment", "columns": {"d:n": "1"}},
        ],
    }

    def count() -> int:
        connection = hbase.connection()
        with contextlib.closing(connection):
            cell = connection.table(TABLE).row(b"count").get(b"d:n", bytes(8))
        return int(struct.unpack(">q", cell)[0])

    lives = Lives(tmp_path, "HBase", options, remembered(count), life_max=150)
    with contextlib.closing(lives):
        lives.begin()
        lives.in_the_middle()
        lives.kill()

        lives.begin()
        lives.in_the_middle()
        hbase.kill()
        lives.is_away()
        hbase.start()
        hbase.wait(TABLE)
        lives.in_the_middle()
        lives.kill()

        lives.begin()
        lives.in_the_middle()
        hdfs.kill()
        hdfs.start(room_bytes=1024 * 1024)
        lives.is_away()
        hbase.kill()
        hdfs.kill()
        hdfs.start()
        hbase.start()
        hbase.wait(TABLE)
        lives.in_the_middle()
        lives.finish()

    connection = hbase.connection()
    with contextlib.closing(connection):
        table = connection.table(TABLE)
        lists = [table.row(b"list-k%d" % key).get(b"d:bodies", b"").splitlines() for key in range(KEYS)]
        lives.check(json.loads(line)["n"] for lines in lists for line in lines)
        assert count() == sum(len(lines) for lines in lists)
        rows = {row for row, _ in table.scan(row_prefix=b"n-")}
    assert rows == {b"n-%d" % json.loads(line)["n"] for lines in lists for line in lines}
