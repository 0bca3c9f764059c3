"""The compiled accelerators and the Python that they stand for, chosen by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from broker.format import unique_key
from broker.index import file, rows
from broker.log import commit_log, encoder
from broker.runtime.accelerators import AcceleratorState, compiled, pure_ways
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
    """Where an accelerator is called: module and attribute, and its module and function."""

    owner: ModuleType
    attribute: str
    module: str
    function: str

    @property
    def pure(self) -> Callable[..., Any]:
        """What does the same in Python."""
        return pure_ways[self.module, self.function]


PLACES = (
    Place(encoder, "measure_usual", "broker.log.encode_accelerator", "measure"),
    Place(encoder, "encode_usual", "broker.log.encode_accelerator", "encode"),
    Place(unique_key, "numbered_keys", "broker.format.unique_key_accelerator", "numbered"),
    Place(rows, "_fed", "broker.index.rows_accelerator", "fed_rows"),
    Place(file, "enter", "broker.index.rows_accelerator", "enter"),
    Place(message_checks, "_check", "proxy.services.check_accelerator", "check"),
    Place(scan_send, "_compact_messages", "proxy.wire.send_accelerator", "compact_messages"),
    Place(scan_send, "_binary_messages", "proxy.wire.send_accelerator", "binary_messages"),
    Place(scan_send, "usual_sends", "proxy.wire.send_accelerator", "sends"),
    Place(replies, "encode_stored_replies", "proxy.wire.send_accelerator", "stored_replies"),
    Place(commit_log, "locate_usual", "broker.format.locate_accelerator", "locate"),
    Place(stretch, "message_keys", "broker.format.locate_accelerator", "keys"),
    Place(source, "message_keys", "broker.format.locate_accelerator", "keys"),
    Place(release_plain, "release", "broker.scheduled.release_accelerator", "release"),
    Place(log_units, "read_units", "broker.scheduled.timer.log_units_accelerator", "read"),
    Place(log_units, "fitting", "broker.scheduled.timer.log_units_accelerator", "fitting"),
    Place(log_units, "usual", "broker.scheduled.timer.log_units_accelerator", "usual"),
    Place(log_units, "completed", "broker.scheduled.timer.log_units_accelerator", "completed"),
    Place(log_units, "count_waiting", "broker.scheduled.timer.log_units_accelerator", "waiting"),
    Place(scan_pull, "usual_pull", "proxy.wire.pull_accelerator", "scan"),
    Place(scan_pull, "usual_submit", "proxy.wire.pull_accelerator", "scan_submit"),
    Place(pull_reply, "usual_reply", "proxy.wire.pull_accelerator", "reply"),
    *(
        Place(job_loops, name, "upstream.jobs_accelerator", name)
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
        for place in PLACES:
            in_python = way == "pure" or (python_jobs and place.owner is job_loops)
            way_chosen = place.pure if in_python else getattr(compiled(place.module)[1], place.function)
            patch.setattr(place.owner, place.attribute, way_chosen)
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
