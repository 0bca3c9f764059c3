"""The locks: all that an installation takes stands in them, in versions that pyproject.toml allows, with their sums."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
INSTALLED = ("server", "speed", "rocketmq", "kafka")
"""The extras of the image, and what a node over Kafka needs."""


def locked(name: str) -> dict[str, str]:
    """Versions by name of a lock. Each entry has its sums, and nothing comes from anywhere else."""
    text = (ROOT / name).read_text()
    assert "://" not in text
    found = {}
    for entry in re.split(r"^(?=[a-zA-Z0-9])", re.sub(r"^ *#.*\n", "", text, flags=re.MULTILINE), flags=re.MULTILINE):
        if not entry:
            continue
        head = re.match(r"([A-Za-z0-9_.-]+)==(\S+)", entry)
        assert head is not None, entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry
        found[str(canonicalize_name(head[1]))] = str(head[2])
    return found


def check(wanted: list[str], lock: dict[str, str]) -> None:
    """Each requirement is there, in its range."""
    for each in map(Requirement, wanted):
        version = lock.get(canonicalize_name(each.name))
        assert version is not None, f"{each} is not locked; run `make lock`"
        assert each.specifier.contains(version), f"{each} is locked at {version}; run `make lock`"


@pytest.mark.parametrize("extra", [None, *INSTALLED])
def test_what_is_installed_is_locked(extra: str | None) -> None:
    """Of the client, and of each extra."""
    project = PROJECT["project"]
    check(
        project["dependencies"] if extra is None else project["optional-dependencies"][extra],
        locked("requirements.lock"),
    )


def test_what_builds_the_wheel_is_locked() -> None:
    """Its code runs while the image is made."""
    check(PROJECT["build-system"]["requires"], locked("requirements-build.lock"))


def test_locks_are_made_of_the_same() -> None:
    """`make lock` takes these extras and no others."""
    line = next(line for line in (ROOT / "Makefile").read_text().splitlines() if "requirements.lock" in line)
    assert tuple(re.findall(r"--extra (\w+)", line)) == INSTALLED


def test_image_takes_nothing_else() -> None:
    """Every installation of the Dockerfile is held to sums, or takes no dependencies."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    calls = re.findall(r"pip (?:install|wheel) [^&\n]*", text)
    assert calls
    assert all("--require-hashes -r requirements" in call or "--no-deps" in call for call in calls)
