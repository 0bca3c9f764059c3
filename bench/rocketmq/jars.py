"""The jars of RocketMQ 5.3.3, fetched once by the pom beside this file, and programs compiled against them.

They stay in a cache folder outside of the checkout: `~/.cache/pyddmq/interop`, or `PYDDMQ_INTEROP_CACHE`.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from bench.servers import maven
from bench.servers.processes import BenchError

HERE = Path(__file__).parent
VERSION = "5.3.3"
POM = HERE / "pom.xml"
# Another pom is another folder, so a cache is whole or not there.
CACHE = (
    Path(os.environ.get("PYDDMQ_INTEROP_CACHE", "~/.cache/pyddmq/interop")).expanduser()
    / f"{VERSION}-{crc32(POM.read_bytes()):08x}"
)
PROGRAMS_NEEDED = {"java": "openjdk-17-jdk-headless", "javac": "openjdk-17-jdk-headless", "mvn": "maven"}


class RocketMQMissing(BenchError):
    """The machine lacks something that RocketMQ needs; the text says what, and how to get it."""


class Programs(NamedTuple):
    """What JVMs run: the folder with the jars, and the one with the compiled programs."""

    jars: Path
    classes: Path

    @property
    def class_path(self) -> str:
        """Both, ours first."""
        return f"{self.classes}:{self.jars}/*"


def fetched() -> bool:
    """Whether the jars are in the cache, so that `fetch` needs no network."""
    return maven.is_fetched(CACHE)


def fetch() -> Path:
    """Return the folder with the jars of pom.xml, fetched when it is not there yet.

    Raises:
        RocketMQMissing: Java or Maven is not installed, or Maven Central cannot be reached.
    """
    return maven.fetch(f"RocketMQ {VERSION}", POM, CACHE, programs=PROGRAMS_NEEDED, missing=RocketMQMissing)


def java_version() -> str:
    """Return the version of the installed Java, such as 17.0.15."""
    said = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr
    return said.partition('"')[2].partition('"')[0] or "unknown"


def compile_programs(jars: Path, sources: Path, folder: Path) -> Programs:
    """Compile the programs in the folder `sources` into another.

    Raises:
        BenchError: The compiler refuses one; with what it says.
    """
    files = [str(each) for each in sorted(sources.glob("*.java"))]
    command = ["javac", "-proc:none", "-nowarn", "-cp", f"{jars}/*", "-d", str(folder), *files]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"javac refuses {sources}:\n{done.stderr}")
    return Programs(jars, folder)
