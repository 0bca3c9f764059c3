"""Shared by all tests: what a test needs from the machine is a skip at a desk and a failure in CI."""

from __future__ import annotations

import contextlib
import gc
import importlib
import logging
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, Phase, settings

from tests.forking import FORKS

IN_CI = os.environ.get("CI", "").lower() in ("1", "true", "yes")
IN_MUTANT = "PYDDMQ_MUTANT" in os.environ
"""Whether the tree has a fault that was put back (`tests.mutants`), and all that is asked is whether a test fails."""

# No deadlines: two shared cores make single examples slow at random, and no test asserts a time. Continuous integration
# takes the same examples each time, so that a run says something about the code alone; at a desk each run searches on.
# A smaller example than the first that fails takes minutes to find, and nobody reads it where the fault is known.
settings.register_profile(
    "pyddmq",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=IN_CI,
    print_blob=True,
    phases=(Phase.explicit, Phase.generate) if IN_MUTANT else tuple(Phase),
)
settings.register_profile("many", settings.get_profile("pyddmq"), max_examples=1_000)
settings.load_profile("pyddmq")

_started: list[Any] = []


class _Recorded(subprocess.Popen):  # type: ignore[type-arg]
    """A process that is known to whoever cleans up behind a test that failed."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        _started.append(self)


def end_with_test(process: Any) -> None:
    """Make a process that is no `Popen`, and has what it takes, known to whoever cleans up behind a test."""
    _started.append(process)


def pytest_configure(config: pytest.Config) -> None:
    """Make processes of tests the same wherever the tests are started from, and known.

    A shell that starts the tests in the background has them ignore SIGINT, and so would all that they start. Where the
    environment forbids to write compiled code beside the sources, processes share it elsewhere: there are hundreds of
    them, and each would compile every module anew. Commands print as into a pipe, whatever terminal is given here.
    """
    os.environ.pop("COLUMNS", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    subprocess.Popen = _Recorded  # type: ignore[misc]
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", ""):
        folder = tempfile.mkdtemp(prefix="pyddmq-bytecode-")
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


def pytest_sessionstart() -> None:
    """The environment that processes get is made up now; those that are forked must not have another one."""
    FORKS.begin()


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Take back how logs are written: a command that runs in the test's process sets it up, for a stream that goes."""
    root = logging.getLogger()
    before, handlers, level = structlog.get_config(), root.handlers[:], root.level
    yield
    structlog.configure(**before)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture(autouse=True)
def _processes() -> Iterator[None]:
    """End what a test started and left running, so that the next one meets nothing of it.

    Processes of fixtures that live longer were started before this, and are let alone.
    """
    known = len(_started)
    yield
    left = [process for process in _started[known:] if process.poll() is None]
    del _started[known:]
    for process in left:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout, process.stderr):
            if stream is not None:
                stream.close()


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


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage meanwhile, a fifth of the time: what is made then stays, and is not looked through later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with Spark where two workers share the tests: at the end it would leave one of them without work."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not item.nodeid.startswith("tests/spark/"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal tests out to workers by file, and all those of Spark to one: a session costs more than what it is for."""
    if config.getoption("dist") != "loadfile":
        return None
    scheduler: Any = importlib.import_module("xdist.scheduler")

    class Scheduling(scheduler.LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> Any:
            return "tests/spark" if nodeid.startswith("tests/spark/") else super()._split_scope(nodeid)

    return Scheduling(config, log)


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
def each_accelerator_way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a module's tests twice: with the accelerators in Python, and compiled."""
    from tests.accelerator_ways import need_compiled, running

    if request.param == "compiled":
        need_compiled()
    with running(request.param):
        yield
