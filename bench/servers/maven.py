"""Jars of servers written in Java, fetched once from Maven Central by a pom, and programs compiled against them.

They stay in a cache folder outside the checkout: `~/.cache/pyddmq/interop`, or `PYDDMQ_INTEROP_CACHE`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

from bench.servers.processes import BenchError

COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_SECONDS_MAX = 300
FETCH_ATTEMPTS = 3
PROGRAMS_NEEDED = {"java": "openjdk-17-jdk-headless", "javac": "openjdk-17-jdk-headless", "mvn": "maven"}


class JarsMissing(BenchError):
    """The machine lacks something that a server needs; the text says what, and how to get it."""


class Programs(NamedTuple):
    """What JVMs run: the folder with the jars, and the one with the compiled programs and settings."""

    jars: Path
    classes: Path

    @property
    def class_path(self) -> str:
        """Both, ours first."""
        return f"{self.classes}:{self.jars}/*"


class Jars:
    """The jars that a pom names, and all that these need.

    Args:
        what: What they are of, with its version, such as `RocketMQ 5.3.3`.
        pom: The file; another content is another folder, so a cache is whole or not there.
        name: Begins the name of its folder in the cache.
        properties: Properties of the pom, as `name=value`.
    """

    def __init__(self, what: str, pom: Path, name: str, *properties: str) -> None:
        self.what = what
        cache = Path(os.environ.get("PYDDMQ_INTEROP_CACHE", "~/.cache/pyddmq/interop")).expanduser()
        self.folder = cache / f"{name}-{crc32(pom.read_bytes()):08x}"
        self._pom = pom
        self._properties = properties

    def fetched(self) -> bool:
        """Whether they are in the cache, so that `fetch` needs no network."""
        return (self.folder / "complete").exists()

    def fetch(self) -> Path:
        """Return the folder with the jars, fetched when they are not there yet.

        Raises:
            JarsMissing: Java or Maven is not installed, or Maven Central cannot be reached.
        """
        for name, package in PROGRAMS_NEEDED.items():
            if shutil.which(name) is None and not (name == "mvn" and self.fetched()):
                raise JarsMissing(f"{self.what} needs {name}, which is not installed (apt install {package})")
        if self.fetched():
            return self.folder
        command = ["mvn", "-B", "-q", "-ntp", "-Dstyle.color=never", "-f", str(self._pom), COPY_GOAL]
        command += ["-DincludeScope=runtime", f"-DoutputDirectory={self.folder}"]
        command += [f"-D{each}" for each in self._properties]
        command += ["-Dmaven.wagon.http.retryHandler.count=3"]
        said = ""
        for _ in range(FETCH_ATTEMPTS):
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
            except subprocess.TimeoutExpired:
                said = f"no end within {FETCH_SECONDS_MAX} s"
                continue
            if not done.returncode:
                (self.folder / "complete").touch()
                return self.folder
            said = " ".join(done.stdout.split())[:500]
        raise JarsMissing(f"{self.what} could not be fetched from Maven Central in {FETCH_ATTEMPTS} attempts: {said}")


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
