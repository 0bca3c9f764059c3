"""Each event of the log has a meaning."""

from __future__ import annotations

import pytest

from tools.log_events import MEANINGS
from tools.log_events_doc import Event, NoConstantEvent, collect, sources


@pytest.fixture(scope="module")
def events() -> dict[str, Event]:
    """What the product's code says."""
    return collect(sources())


def test_each_event_has_a_meaning_and_each_meaning_an_event(events: dict[str, Event]) -> None:
    """A new event is entered in tools/log_events.py with one sentence; one that is gone is taken out."""
    assert not events.keys() - MEANINGS.keys()
    assert not MEANINGS.keys() - events.keys()
    assert len(events) > 100
    assert not {name for name, text in MEANINGS.items() if not text.endswith(".") or not text[0].isupper()}


def test_events_that_are_known_to_be_written_are_found(events: dict[str, Event]) -> None:
    """One of each way to write a line, with its level and the fields that other tests read in real lines."""
    assert events["ready"].levels == {"info"}
    assert {"version", "config", "access", "recovery_seconds"} <= events["ready"].fields.keys()
    assert events["send_refused"].levels == {"warning"}
    assert "kind" not in events["send_refused"].fields
    assert {"code", "client", "text", "count"} <= events["send_refused"].fields.keys()
    assert events["call_failed"].levels == {"error"}
    assert "exception" in events["call_failed"].fields
    assert {"group", "topic"} <= events["offset_changed_by_others"].fields.keys()
    assert "proxy.node.node" in events["store_close_failed"].modules


def test_collector_reads_every_way_to_write_a_line() -> None:
    """Loggers, the rate-limited log and faults, with group, mappings and levels; no other calls of the same names."""
    source = """
log.info("began", root=1)
self._log.exception("ended_badly")
self._limited_log.note("refused", self.group, 2, kind=x, topic=t)
limited_log.note("refused", "", fault=e)
limited_log.fault("broke", error, kind="a", work=w)
logger.warning("moved", **names_of(tracker), **more)
retries.note("no_event", x=1)
catalog.info("no_event")
"""
    found = collect([("somewhere", source)])

    assert {name: (each.levels, list(each.fields)) for name, each in found.items()} == {
        "began": ({"info"}, ["root"]),
        "ended_badly": ({"error"}, ["exception"]),
        "refused": ({"warning", "error"}, ["group", "topic", "count", "fault"]),
        "broke": ({"error"}, ["work", "count", "fault", "at", "exception"]),
        "moved": ({"warning"}, ["group", "topic", "queue", "..."]),
    }


def test_event_that_is_no_constant_is_named() -> None:
    """What varies is a field; a page could not list it."""
    with pytest.raises(NoConstantEvent, match=r"somewhere:1: f'a_\{b\}' is not a constant"):
        collect([("somewhere", "log.info(f'a_{b}')")])
