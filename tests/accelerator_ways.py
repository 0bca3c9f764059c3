"""The compiled accelerators and the Python that they stand for, chosen by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from broker.format import locating, unique_key
from broker.index import file, rows
from broker.log import commit_log, encoder
from broker.runtime.accelerators import AcceleratorState, compiled
from broker.scheduled import release_plain
from broker.scheduled.timer import log_units
from proxy.services import message_checks
from proxy.wire import pull_reply, replies
from proxy.wire.scanning import scan_pull, scan_send
from tests.conftest import need
from upstream.embedded import source, stretch
from upstream.job import JobFields, UpstreamJob
from upstream.waiting import job_loops


class Place(NamedTuple):
    """Where an accelerator is called: module and attribute, its module and function, and what stands for it."""

    owner: ModuleType
    attribute: str
    module: str
    function: str
    pure: Callable[..., Any]


PLACES = (
    Place(encoder, "_measure", "broker.log.encode_accelerator", "measure", encoder._measure_none),
    Place(encoder, "_encode", "broker.log.encode_accelerator", "encode", encoder._encode_none),
    Place(unique_key, "numbered_keys", "broker.format.unique_key_accelerator", "numbered", unique_key._numbered),
    Place(rows, "_fed", "broker.index.rows_accelerator", "fed_rows", rows._fed_rows),
    Place(file, "_enter", "broker.index.rows_accelerator", "enter", file._enter_each),
    Place(message_checks, "_check", "proxy.services.check_accelerator", "check", message_checks._check_none),
    Place(scan_send, "_compact_messages", "proxy.wire.send_accelerator", "compact_messages", scan_send._one_by_one),
    Place(scan_send, "_binary_messages", "proxy.wire.send_accelerator", "binary_messages", scan_send._one_by_one),
    Place(scan_send, "usual_sends", "proxy.wire.send_accelerator", "sends", scan_send._sends_none),
    Place(
        replies,
        "encode_stored_replies",
        "proxy.wire.send_accelerator",
        "stored_replies",
        replies._stored_replies,
    ),
    Place(commit_log, "locate_usual", "broker.format.locate_accelerator", "locate", locating._locate_none),
    Place(stretch, "message_keys", "broker.format.locate_accelerator", "keys", locating._keys_none),
    Place(source, "message_keys", "broker.format.locate_accelerator", "keys", locating._keys_none),
    Place(release_plain, "release", "broker.scheduled.release_accelerator", "release", release_plain._release),
    Place(log_units, "read_units", "broker.scheduled.timer.log_units_accelerator", "read", log_units._read_none),
    Place(log_units, "fitting", "broker.scheduled.timer.log_units_accelerator", "fitting", log_units._fitting),
    Place(log_units, "usual", "broker.scheduled.timer.log_units_accelerator", "usual", log_units._usual),
    Place(log_units, "completed", "broker.scheduled.timer.log_units_accelerator", "completed", log_units._completed),
    Place(log_units, "count_waiting", "broker.scheduled.timer.log_units_accelerator", "waiting", log_units._waiting),
    Place(scan_pull, "_usual", "proxy.wire.pull_accelerator", "scan", scan_pull._usual_none),
    Place(scan_pull, "_usual_submit", "proxy.wire.pull_accelerator", "scan_submit", scan_pull._usual_submit_none),
    Place(pull_reply, "_usual", "proxy.wire.pull_accelerator", "reply", pull_reply._usual_none),
    *(
        Place(job_loops, name, "upstream.jobs_accelerator", name, getattr(job_loops, f"_{name}"))
        for name in ("make", "submit", "admit", "buffer", "take", "hand_out", "finish", "places")
    ),
)
MODULES = sorted({place.module for place in PLACES})
WAYS = ("pure", "compiled")


def need_compiled() -> None:
    """Skip where the accelerators are not compiled; with CI=true that is a failure."""
    missing = {
        module: state.value for module in MODULES if (state := compiled(module)[0]) is not AcceleratorState.COMPILED
    }
    need(not missing, f"a compiled accelerator (python compile_accelerators.py, with a C compiler) of {missing}")


@contextmanager
def running(way: str) -> Iterator[None]:
    """Have all accelerators run in one of the two ways, whatever the environment says.

    But for those of jobs, where the environment says Python: they take jobs of the compiled class alone.
    """
    python_jobs = issubclass(UpstreamJob, JobFields)
    with pytest.MonkeyPatch.context() as patch:
        for owner, attribute, module, function, pure in PLACES:
            python = pure if way == "pure" or (python_jobs and owner is job_loops) else None
            patch.setattr(owner, attribute, python or getattr(compiled(module)[1], function))
        yield


def both(work: Callable[[], Any]) -> Any:
    """Return what `work` returns, or class and text of what it raises; asserts that both ways give the same."""
    found = []
    for way in WAYS:
        with running(way):
            try:
                found.append(work())
            except Exception as error:
                found.append((type(error), str(error)))
    assert found[0] == found[1]
    return found[0]
