"""HDFS and HBase as processes of the tests' own, from Maven Central; each is killed and started again on its files.

HBase stands on that HDFS. On plain files it would keep its log in memory, and lose what it answered when it is killed.
"""

from __future__ import annotations

import getpass
import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import urlopen

from bench.servers.java import JVM_OPTIONS, JavaProcess
from bench.servers.maven import Jars, JarsMissing, Programs, compile_programs
from tests.conftest import need
from tests.patient import PATIENCE_SECONDS, quiet_ports, until

HERE = Path(__file__).parent
OPENED = (
    "java.lang", "java.lang.reflect", "java.util", "java.util.concurrent", "java.nio", "sun.nio.ch", "jdk.internal.ref",
)  # fmt: skip
"""Packages of Java 17 that HBase 2.6 reaches into."""
HBASE_OPTIONS = (
    *JVM_OPTIONS,
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    *(f"--add-opens=java.base/{each}=ALL-UNNAMED" for each in OPENED),
)
# What nobody reads would fill the pipe of what it says.
LOGGING = """\
log4j.rootLogger=WARN,err
log4j.appender.err=org.apache.log4j.ConsoleAppender
log4j.appender.err.target=System.err
log4j.appender.err.layout=org.apache.log4j.PatternLayout
log4j.appender.err.layout.ConversionPattern=%d %p %c{1} %m%n
"""


def programs_of(name: str, what: str, folder: Path) -> Programs:
    """Fetch the jars of a server, and compile its program into a folder; a skip with the reason, or a failure in CI."""
    sources = HERE / name
    jars = Jars(what, sources / "pom.xml", name)
    try:
        found = jars.fetch()
    except JarsMissing as error:
        need(False, f"{error}, so it")
        raise
    folder.mkdir(parents=True)
    programs = compile_programs(found, sources, folder)
    (folder / "log4j.properties").write_text(LOGGING)
    # Hadoop's commands want one.
    (folder / "core-site.xml").write_text("<configuration></configuration>\n")
    return programs


class HdfsServer:
    """One name node and one data node; its ports stay the same over its lives.

    Args:
        folder: For its files.
        programs: Class path.
    """

    user = getpass.getuser()
    """Who may do everything there."""

    def __init__(self, folder: Path, programs: Programs) -> None:
        self._folder = folder
        self._programs = programs
        self._port, self._http = quiet_ports(2)
        self._process: JavaProcess | None = None
        self.start()

    @property
    def url(self) -> str:
        """Of WebHDFS."""
        return f"http://127.0.0.1:{self._http}"

    @property
    def root(self) -> str:
        """For programs that speak HDFS itself."""
        return f"hdfs://127.0.0.1:{self._port}"

    def start(self, *, room_bytes: int | None = None) -> None:
        """Start it on what its folder has, and wait until it takes calls.

        Args:
            room_bytes: What the data node may use of its disk; less than a block, and it takes nothing.
        """
        given = {
            # Else it would look for a gap of the heartbeats of minutes before it believes that a data node is new.
            "dfs.heartbeat.interval": "1",
            "dfs.namenode.safemode.extension": "0",
            # A data node drops a replica, though it is on the disk, when a reader opens it while an append ends.
            # A scan of its folders finds it, and a report names it; both happen every six hours by default.
            "dfs.datanode.directoryscan.interval": "2",
            "dfs.blockreport.intervalMsec": "2000",
            "dfs.blocksize": str(8 * 1024 * 1024),
        }
        if room_bytes is not None:
            # Without any capacity the data node would not count as started.
            given["dfs.datanode.du.reserved"] = str(shutil.disk_usage(self._folder).total - room_bytes)
        command = ["Hdfs", str(self._folder / "files"), str(self._port), str(self._http)]
        command += [f"{name}={value}" for name, value in given.items()]
        self._process = JavaProcess(self._folder / "home", self._programs, command)
        self._process.wait_for("up")

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def files(self, folder: str) -> list[str]:
        """Paths of all files below a folder, hidden ones too."""
        try:
            raw = self._get(folder, op="LISTSTATUS")
        except HTTPError as error:
            error.close()
            if error.code == 404:
                return []
            raise
        found = []
        for each in json.loads(raw)["FileStatuses"]["FileStatus"]:
            path = f"{folder}/{each['pathSuffix']}"
            found += self.files(path) if each["type"] == "DIRECTORY" else [path]
        return sorted(found)

    def read(self, path: str) -> bytes:
        """Bytes of a file."""
        return self._get(path, op="OPEN")

    def text(self, path: str) -> str:
        """A file as Hadoop's own command `-text` shows it: key and value of each record of a SequenceFile."""
        command = ["java", *JVM_OPTIONS, "-cp", self._programs.class_path, "org.apache.hadoop.fs.FsShell"]
        done = subprocess.run(
            [*command, "-text", f"{self.root}{path}"],
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_SECONDS,
        )
        assert not done.returncode, done.stderr
        return done.stdout

    def _get(self, path: str, **query: str) -> bytes:
        words = "&".join(f"{name}={quote(value)}" for name, value in {**query, "user.name": self.user}.items())
        with urlopen(f"{self.url}/webhdfs/v1{quote(path)}?{words}", timeout=PATIENCE_SECONDS) as answer:
            return bytes(answer.read())


class HBaseServer:
    """A standalone HBase on an HDFS, with its Thrift server; its port stays the same over its lives."""

    def __init__(self, folder: Path, programs: Programs, hdfs: HdfsServer) -> None:
        self._folder = folder
        self._programs = programs
        self._thrift, zookeeper = quiet_ports(2)
        settings = {
            "hbase.rootdir": f"{hdfs.root}/hbase",
            "hbase.zookeeper.property.dataDir": str(folder / "zookeeper"),
            "hbase.zookeeper.property.clientPort": str(zookeeper),
            "hbase.zookeeper.quorum": "127.0.0.1",
            # How long a killed one is taken for alive.
            "hbase.zookeeper.property.tickTime": "1000",
            "zookeeper.session.timeout": "15000",
            "hbase.wal.provider": "filesystem",
            "hbase.master.port": "0",
            "hbase.master.info.port": "-1",
            "hbase.master.hostname": "127.0.0.1",
            "hbase.master.ipc.address": "127.0.0.1",
            "hbase.regionserver.port": "0",
            "hbase.regionserver.info.port": "-1",
            "hbase.regionserver.hostname": "127.0.0.1",
            "hbase.regionserver.ipc.address": "127.0.0.1",
        }
        (programs.classes / "hbase-site.xml").write_text(_site(settings))
        self._process: JavaProcess | None = None
        self.start()

    @property
    def address(self) -> str:
        """Of the Thrift server."""
        return f"127.0.0.1:{self._thrift}"

    def start(self) -> None:
        """Start it on what HDFS has of it; `wait` says when it can be asked."""
        self._process = JavaProcess(
            self._folder / "home", self._programs, ["Hbase", str(self._thrift)], options=HBASE_OPTIONS
        )

    def kill(self) -> None:
        """SIGKILL, and wait."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def running(self) -> bool:
        """Whether its process is there."""
        return self._process is not None and self._process.process.poll() is None

    def connection(self) -> Any:
        """A connection of happybase."""
        import happybase

        return happybase.Connection("127.0.0.1", self._thrift, transport="framed", timeout=60_000)

    def make_table(self, name: str, **families: dict[str, Any]) -> None:
        """Make a table, as soon as the server can."""

        def made() -> bool:
            return self._asked(lambda connection: _made(connection, name, families))

        until(made, f"HBase makes the table {name}")

    def wait(self, table: str) -> None:
        """Return when a table can be read."""
        until(lambda: self._asked(lambda connection: connection.table(table).row(b"none") == {}), "HBase answers")

    def _asked(self, ask: Any) -> bool:
        from Hbase_thrift import IOError as Refused
        from thriftpy2.thrift import TException

        assert self._process is not None
        assert self.running(), self._process.logged()
        try:
            connection = self.connection()
            try:
                return bool(ask(connection))
            finally:
                connection.close()
        except (OSError, TException, Refused):
            return False


def _made(connection: Any, name: str, families: Mapping[str, dict[str, Any]]) -> bool:
    if name.encode() not in connection.tables():
        connection.create_table(name, dict(families))
    return bool(connection.table(name).row(b"none") == {})


def _site(settings: Mapping[str, str]) -> str:
    lines = [f"<property><name>{name}</name><value>{value}</value></property>" for name, value in settings.items()]
    return "\n".join(["<configuration>", *lines, "</configuration>", ""])


def end(server: HdfsServer | HBaseServer, folder: Path) -> None:
    """Kill a server and remove its files, but for what it said."""
    server.kill()
    for each in folder.iterdir():
        if each.name != "home":
            shutil.rmtree(each, ignore_errors=True)
