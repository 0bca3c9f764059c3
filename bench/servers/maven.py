"""Jars of a server, fetched once from Maven Central by a pom into a folder outside of the checkout."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench.servers.processes import BenchError

COPY_GOAL = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
FETCH_SECONDS_MAX = 300
FETCH_ATTEMPTS = 3


def is_fetched(folder: Path) -> bool:
    """Whether the jars are there, so that `fetch` needs no network."""
    return (folder / "complete").exists()


def fetch(name: str, pom: Path, folder: Path, *, programs: Mapping[str, str], missing: type[BenchError]) -> Path:
    """Return the folder with the jars of a pom, fetched when it is not there yet.

    Args:
        name: What they are, for sentences.
        pom: What to fetch.
        folder: Where to; another pom is another folder.
        programs: What must be installed, each with its package; Maven only where the jars are not there.
        missing: Raised with the sentence.

    Raises:
        BenchError: As `missing`: a program is not installed, or Maven Central cannot be reached.
    """
    for program, package in programs.items():
        if shutil.which(program) is None and not (program == "mvn" and is_fetched(folder)):
            raise missing(f"{name} needs {program}, which is not installed (apt install {package})")
    if is_fetched(folder):
        return folder
    command = ["mvn", "-B", "-q", "-ntp", "-Dstyle.color=never", "-f", str(pom), COPY_GOAL, "-DincludeScope=runtime"]
    command += [f"-DoutputDirectory={folder}", "-Dmaven.wagon.http.retryHandler.count=3"]
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
    raise missing(f"{name} could not be fetched from Maven Central in {FETCH_ATTEMPTS} attempts: {said}")
