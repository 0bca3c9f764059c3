"""What the commands of `pyddmq store` share: opening a data directory for reading, and its errors as sentences."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from broker.runtime.disk import RealDisk
from broker.runtime.seams import SystemClock
from proxy.cli.errors import CliError
from proxy.cli.output import progress
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from broker.tools.readonly import ReadOnlyStore

DataFolder = Annotated[Path, typer.Argument(help="Data directory; a node may have it open.", readable=False)]


@contextlib.contextmanager
def store_errors(data: Path, *, quiet: bool = False) -> Iterator[None]:
    """Turn what goes wrong with a data directory into sentences with exit code 6; only errors are logged, on stderr.

    Args:
        data: The data directory.
        quiet: Log nothing: the command reports all that is wrong itself.
    """
    import structlog

    from broker.errors import StoreError

    before = structlog.get_config()
    # What the other lines would say, commands say themselves; and stdout is the commands' own.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL if quiet else logging.ERROR),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
    )
    try:
        yield
    except StoreError as error:
        raise CliError(str(error), ExitCode.DATA_UNUSABLE) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        from conf.file_faults import file_fault

        where = error.filename or data
        raise CliError(f"cannot use {where}: {file_fault(error, where)}", ExitCode.DATA_UNUSABLE) from error
    finally:
        structlog.configure(**before)


@contextlib.contextmanager
def query_errors() -> Iterator[None]:
    """Turn what a query says of a data directory into the exit codes that a node's answer has."""
    from broker.query import NotFound, QueryRefused

    try:
        yield
    except NotFound as error:
        raise CliError(str(error), ExitCode.NOT_FOUND) from error
    except QueryRefused as error:
        raise CliError(str(error), ExitCode.REFUSED) from error


@contextlib.contextmanager
def opened(data: Path, *, as_json: bool) -> Iterator[ReadOnlyStore]:
    """Open a data directory for reading, without lock or change; a progress bar shows where the log is scanned."""
    from broker.tools.readonly import ReadOnlyStore

    root = str(data.absolute())
    with store_errors(data):
        with progress("opening", log_bytes(root), unit="bytes", enabled=not as_json) as advance:
            store = ReadOnlyStore.open(
                root,
                disk=RealDisk(read_only=True),
                clock=SystemClock(),
                progress=lambda done, _total: advance(done),
            )
        try:
            yield store
        finally:
            store.close()


def log_bytes(root: str) -> int:
    """Size in bytes of all files of the log; 0 when there is none."""
    return folder_bytes(Path(root) / "commitlog")


def folder_bytes(folder: Path) -> int:
    """Size in bytes of all files below a folder; files that vanish meanwhile count nothing."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                total += path.stat().st_size
    return total
