"""Events between two rounds: what is told, what is seen by comparing rounds, and how many."""

from __future__ import annotations

from broker.retention import ExpiringSegment, Relocation
from broker.runtime.steps import run_now
from lag.rules.limits import LagLimits
from lag.samples import EventKind, QueueKey, QueueSample
from lag.verdicts.windows import NodeWindows
from proxy.recording.recorder import DETAIL_CHARS_MAX, EVENTS_MAX, Notes, RetentionNotes
from pyddmq.testing import ManualClock


def key(group: str, queue: int) -> QueueKey:
    """A queue of one topic."""
    return QueueKey(cluster="c", node="n", group=group, topic="t", queue=queue)


def test_events_come_once_in_order_with_one_line_of_detail() -> None:
    """Dated by the wall clock; what was taken is gone."""
    clock = ManualClock()
    notes = Notes(clock)
    notes.add(EventKind.PAUSE, "g", "t", queue=3, detail="by\n 10.0.0.1 " + "x" * 300)
    clock.advance(1)
    notes.add(EventKind.RESUME, "g")
    first, second = notes.take()
    assert (first.kind, first.group, first.topic, first.queue) == (EventKind.PAUSE, "g", "t", 3)
    assert first.detail.startswith("by 10.0.0.1 xxx")
    assert len(first.detail) == DETAIL_CHARS_MAX
    assert (second.queue, second.topic, second.time_ms - first.time_ms) == (-1, "", 1000)
    assert notes.take() == []


def look(notes: Notes, *keys: QueueKey) -> None:
    """Have queues be in a round."""
    run_now(notes.looking_at_queues([(each, QueueSample(time_ms=0)) for each in keys]))


def test_queue_and_group_that_are_no_longer_there_have_left() -> None:
    """Of a group that is gone as a whole one event says so."""
    notes = Notes(ManualClock())
    look(notes, key("a", 0), key("a", 1), key("b", 0), key("b", 1))
    assert notes.take() == []
    look(notes, key("a", 0))
    assert [(each.kind, each.group, each.topic, each.queue) for each in notes.take()] == [
        (EventKind.LEFT, "b", "", -1),
        (EventKind.LEFT, "a", "t", 1),
    ]
    look(notes, key("a", 0))
    assert notes.take() == []


def test_flood_of_events_is_bounded_and_says_so() -> None:
    """The first are kept."""
    notes = Notes(ManualClock())
    for number in range(EVENTS_MAX + 5):
        notes.add(EventKind.RESET, detail=str(number))
    found = notes.take()
    assert len(found) == EVENTS_MAX + 1
    assert (found[0].detail, found[-1].detail) == ("0", "5 more events are omitted")


def test_reset_of_a_topic_with_very_many_queues_is_a_rewind_of_none_of_them() -> None:
    """Those that have no event of their own are in one of their topic; no other group is in it."""
    notes, windows, queues = Notes(ManualClock()), NodeWindows(), range(EVENTS_MAX + 24)
    wall_ms = ManualClock().wall_ms()

    def round_of(time_ms: int, committed: int) -> None:
        for group in ("a", "b"):
            for queue in queues:
                sample = QueueSample(time_ms=time_ms, start=0, end=100, committed=committed, moved_ms=time_ms)
                windows.add((group, "t", queue), sample)

    for number in range(5):
        round_of(wall_ms - 50_000 + number * 10_000, 90)
    for queue in queues:
        notes.add(EventKind.RESET, "a", "t", queue=queue, detail="from 90 to 60")
    found = notes.take()
    assert (len(found), found[-1].group, found[-1].topic, found[-1].queue) == (EVENTS_MAX + 1, "a", "t", -1)
    for event in found:
        windows.note(event)
    round_of(wall_ms + 10_000, 60)
    judged = windows.judged(wall_ms + 10_000, lambda *_: LagLimits())
    rewound = {
        group: sum(each.verdict.status == "REWIND" for each in judged if each.place[0] == group) for group in "ab"
    }
    assert rewound == {"a": 0, "b": len(queues)}


def test_deleted_log_file_is_noted_with_where_queues_begin() -> None:
    """And holds nothing back."""
    notes = Notes(ManualClock())
    hold = RetentionNotes(notes)
    minimums = {("t", queue): 10 * queue for queue in range(5)}
    expiring = ExpiringSegment(start=0, end=4096, last_ms=None, minimums=minimums, reason="age")
    assert not hold.needs(expiring)
    assert run_now(hold.relocate(expiring, 10)) is Relocation.DONE
    hold.dropped(expiring)
    [event] = notes.take()
    assert event.kind is EventKind.RETENTION
    assert event.detail == "a log file was deleted for its age: t 0 from 0, t 1 from 10, t 2 from 20 and 2 more"
