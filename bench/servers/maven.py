"""Jars of servers written in Java, fetched once from Maven Central by a pom, and programs compiled against them.

Where they are kept, and how they are fetched, stands in `proxy.demo.kafka.download`.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

from bench.servers.processes import BenchError
from proxy.demo.kafka.download import CannotFetch, fetch, fetched, folder_of

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
    """

    def __init__(self, what: str, pom: Path, name: str) -> None:
        self.what = what
        self.folder = folder_of(pom, name)
        self._pom = pom

    def fetched(self) -> bool:
        """Whether they are in the cache, so that `fetch` needs no network."""
        return fetched(self.folder)

    def fetch(self) -> Path:
        """Return the folder with the jars, fetched when they are not there yet.

        Raises:
            JarsMissing: Java or Maven is not installed, or Maven Central cannot be reached.
        """
        for name, package in PROGRAMS_NEEDED.items():
            if shutil.which(name) is None and not (name == "mvn" and self.fetched()):
                raise JarsMissing(f"{self.what} needs {name}, which is not installed (apt install {package})")
        try:
            return fetch(self._pom, self.folder, self.what)
        except CannotFetch as error:
            raise JarsMissing(str(error)) from error


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
