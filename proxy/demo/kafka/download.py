"""Jars from Maven Central, fetched once by a pom.

They stay in a cache folder outside of the checkout: `~/.cache/pyddmq/interop`, or `PYDDMQ_INTEROP_CACHE`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from zlib import crc32

COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_SECONDS_MAX = 300
FETCH_ATTEMPTS = 3


class CannotFetch(Exception):
    """The jars cannot be had; the text says what is missing, and how to get it."""


def folder_of(pom: Path, name: str) -> Path:
    """Return where the jars of a pom are kept; another content is another folder, so a cache is whole or not there."""
    cache = Path(os.environ.get("PYDDMQ_INTEROP_CACHE", "~/.cache/pyddmq/interop")).expanduser()
    return cache / f"{name}-{crc32(pom.read_bytes()):08x}"


def fetched(folder: Path) -> bool:
    """Whether a folder has its jars, so that `fetch` needs no network."""
    return (folder / "complete").exists()


def fetch(pom: Path, folder: Path, what: str) -> Path:
    """Have the jars that a pom names, and all that these need, in a folder; fetched when they are not there yet.

    Args:
        pom: The file.
        folder: As of `folder_of`.
        what: What they are of, for the sentence.

    Raises:
        CannotFetch: Maven is not installed, or Maven Central cannot be reached.
    """
    if fetched(folder):
        return folder
    if shutil.which("mvn") is None:
        raise CannotFetch(f"{what} needs mvn, which is not installed (apt install maven)")
    command = ["mvn", "-B", "-q", "-ntp", "-Dstyle.color=never", "-f", str(pom), COPY_GOAL]
    command += ["-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    command += ["-Dmaven.wagon.http.retryHandler.count=3"]
    said = ""
    for _ in range(FETCH_ATTEMPTS):
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS_MAX, check=False)
        except subprocess.TimeoutExpired:
            said = f"no end within {FETCH_SECONDS_MAX} s"
            continue
        if not done.returncode:
            (folder / "complete").touch()
            return folder
        said = " ".join(done.stdout.split())[:500]
    raise CannotFetch(f"{what} could not be fetched from Maven Central in {FETCH_ATTEMPTS} attempts: {said}")
