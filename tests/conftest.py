"""Shared by all tests: what a test needs from the machine is a skip at a desk and a failure in CI."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import structlog
from hypothesis import HealthCheck, settings

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")

# No deadlines: two shared cores make single examples slow at random, and no test asserts a time. The examples are the
# same everywhere, so that a run says something about the code alone; --hypothesis-profile=search draws others.
settings.register_profile("pyddmq", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("search", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pyddmq")


def pytest_configure(config: pytest.Config) -> None:
    """Let processes share compiled code where the environment forbids to write it beside the sources.

    There are hundreds of them, and each would compile every module anew.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = tempfile.mkdtemp(prefix="pyddmq-bytecode-")
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Take back how logs are written: a command that runs in the test's process sets it up, for a stream that goes."""
    root = logging.getLogger()
    before, handlers, level = structlog.get_config(), root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


def need(present: object, what: str) -> None:
    """Go on when `present` is true; otherwise skip, or fail where CI=true says that everything must be there.

    Args:
        present: Whether the component is there.
        what: Its name and how to get it, such as `redis-server (apt install redis-server)`.
    """
    if present:
        return
    if IN_CI:
        pytest.fail(f"{what} is missing, and CI=true allows no skips")
    pytest.skip(f"{what} is missing")


def need_program(name: str, hint: str = "") -> str:
    """Return the path of a program on PATH, or skip (fail in CI)."""
    path = shutil.which(name)
    need(path, f"{name}{f' ({hint})' if hint else ''}")
    assert path is not None, "need() does not return without it"
    return path


def need_module(name: str, hint: str = "") -> ModuleType:
    """Return an optional module, imported, or skip (fail in CI)."""
    try:
        return importlib.import_module(name)
    except ImportError:
        need(False, f"the module {name}{f' ({hint})' if hint else ''}")
        raise


REPORTED_CHARACTERS = 4_000


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the ends of the logs in a failed test's folder into its report: a machine elsewhere keeps nothing else."""
    report = yield
    folder = getattr(item, "funcargs", {}).get("tmp_path")
    if report.failed and folder is not None:
        for log in sorted(Path(folder).rglob("*.log")):
            with contextlib.suppress(OSError):
                text = log.read_text(errors="replace")
                report.sections.append((f"end of {log.relative_to(folder)}", text[-REPORTED_CHARACTERS:]))
    return report


@pytest.fixture(scope="module", params=("pure", "compiled"))
def each_leaf_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a module's tests twice: with the leaves in Python, and compiled."""
    from tests.leaf_ways import need_compiled, running

    if request.param == "compiled":
        need_compiled()
    with running(request.param):
        yield
