"""One HDFS and one HBase for all tests of the folder, each started when a test first asks for it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.servers.maven import Programs
from tests.conftest import need_module
from tests.sinks.servers import HBaseServer, HdfsServer, end, programs_of


@pytest.fixture(scope="session")
def hdfs_programs(tmp_path_factory: pytest.TempPathFactory) -> Programs:
    """What HDFS is started by."""
    return programs_of("hdfs", "HDFS 3.4.1", tmp_path_factory.mktemp("hdfs") / "classes")


@pytest.fixture(scope="session")
def hdfs(hdfs_programs: Programs, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HdfsServer]:
    """HDFS; HBase stands on it."""
    folder = tmp_path_factory.mktemp("hdfs")
    server = HdfsServer(folder, hdfs_programs)
    yield server
    end(server, folder)


@pytest.fixture(scope="session")
def only_hbase(hdfs: HdfsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HBaseServer]:
    """HBase."""
    need_module("happybase", "pip install 'pyddmq[hbase]'")
    folder: Path = tmp_path_factory.mktemp("hbase")
    server = HBaseServer(folder, programs_of("hbase", "HBase 2.6.1", folder / "classes"), hdfs)
    yield server
    end(server, folder)


@pytest.fixture
def hbase(only_hbase: HBaseServer) -> HBaseServer:
    """HBase, started again when the test before killed it: what a test starts is ended with it."""
    if not only_hbase.running():
        only_hbase.start()
    return only_hbase
