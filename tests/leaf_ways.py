"""The compiled leaves and the Python that they stand for, chosen by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from broker.format import locating, record, unique_key
from broker.index import file, rows
from broker.log import commit_log, encoder
from broker.runtime.leaves import LeafState, compiled
from broker.scheduled import release_plain
from broker.scheduled.timer import taking
from proxy.services import message_checks
from proxy.wire import pull_reply, scan_binary_send, scan_compact, scan_compact_send
from tests.conftest import need
from upstream import source
from upstream.delivery import job_loops


class Place(NamedTuple):
    """Where a leaf is called: module and attribute, the leaf's module and function, and what stands for it."""

    owner: ModuleType
    attribute: str
    module: str
    function: str
    pure: Callable[..., Any]


PLACES = (
    Place(encoder, "_measure", "broker.log.encode_leaf", "measure", encoder._measure_none),
    Place(encoder, "_encode", "broker.log.encode_leaf", "encode", encoder._encode_none),
    Place(record, "crc32", "broker.format.sum_leaf", "crc32", record.library_crc32),
    Place(unique_key, "numbered_keys", "broker.format.unique_key_leaf", "numbered", unique_key._numbered),
    Place(rows, "_fed", "broker.index.rows_leaf", "fed_rows", rows._fed_none),
    Place(file, "_enter", "broker.index.rows_leaf", "enter", file._enter_by_columns),
    Place(message_checks, "_check", "proxy.services.check_leaf", "check", message_checks._check_none),
    Place(scan_compact_send, "_scan", "proxy.wire.send_leaf", "compact_messages", scan_compact_send._by_shapes),
    Place(scan_binary_send, "_scan", "proxy.wire.send_leaf", "binary_messages", scan_binary_send._by_layout),
    Place(commit_log, "locate_usual", "broker.format.locate_leaf", "locate", locating._locate_usual),
    Place(source, "message_keys", "broker.format.locate_leaf", "keys", locating._message_keys),
    Place(release_plain, "release", "broker.scheduled.release_leaf", "release", release_plain._release),
    Place(taking, "read_units", "broker.scheduled.timer.taking_leaf", "read", taking._read),
    Place(taking, "fitting", "broker.scheduled.timer.taking_leaf", "fitting", taking._fitting),
    Place(taking, "usual", "broker.scheduled.timer.taking_leaf", "usual", taking._usual),
    Place(taking, "settled", "broker.scheduled.timer.taking_leaf", "settled", taking._settled),
    Place(taking, "count_waiting", "broker.scheduled.timer.taking_leaf", "waiting", taking._waiting),
    Place(scan_compact, "_usual", "proxy.wire.pull_leaf", "scan", scan_compact._usual_none),
    Place(scan_compact, "_usual_submit", "proxy.wire.pull_leaf", "scan_submit", scan_compact._usual_submit_none),
    Place(pull_reply, "_usual", "proxy.wire.pull_leaf", "reply", pull_reply._usual_none),
    *(
        Place(job_loops, name, "upstream.delivery.jobs_leaf", name, getattr(job_loops, f"_{name}"))
        for name in ("placed", "make", "submit", "admit", "buffer", "take", "hand_out", "settle", "places")
    ),
)
MODULES = sorted({place.module for place in PLACES})
WAYS = ("pure", "compiled")


def need_compiled() -> None:
    """Skip where the leaves are not compiled; with CI=true that is a failure."""
    missing = {module: state.value for module in MODULES if (state := compiled(module)[0]) is not LeafState.COMPILED}
    need(not missing, f"a compiled leaf (python compile_leaves.py, with a C compiler) of {missing}")


@contextmanager
def running(way: str) -> Iterator[None]:
    """Have all leaves run in one of the two ways, whatever the environment says."""
    with pytest.MonkeyPatch.context() as patch:
        for owner, attribute, module, function, pure in PLACES:
            patch.setattr(owner, attribute, pure if way == "pure" else getattr(compiled(module)[1], function))
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
