"""Samples of a whole Kafka cluster."""

from __future__ import annotations

import pytest

from lag.samples import EventKind, QueueSample
from proxy.recording import cluster_samples as module
from proxy.recording.cluster_samples import ClusterSampler
from pyddmq.testing.manual_time import ManualClock
from tests.unit.proxy.recording.cluster_survey import SetSurvey
from upstream.kafka.all_groups import CommittedPosition
from upstream.kafka.commits.metadata import encode
from upstream.kafka.link import KafkaPartition
from upstream.progress.tracker import AttemptFailures

A, B = KafkaPartition("orders", 0), KafkaPartition("orders", 1)
NOW_MS = ManualClock().wall_ms()


def made(survey: SetSurvey, time: ManualClock | None = None) -> ClusterSampler:
    """A sampler."""
    return ClusterSampler(survey, time or ManualClock(), cluster="main", node="n")


def samples(sampler: ClusterSampler) -> dict[tuple[str, str, int], QueueSample]:
    """One round."""
    return {(key.group, key.topic, key.queue): sample for key, sample in sampler.round().queues}


def one_behind(committed: int, start: int, end: int) -> SetSurvey:
    """A cluster with one group at one partition."""
    survey = SetSurvey()
    survey.committed = {"billing": {A: CommittedPosition(committed, "")}}
    survey.bounds = {A: (start, end)}
    return survey


def test_rows_are_those_that_were_committed_or_are_assigned() -> None:
    """With both ends; a position that was never committed is not known, and no 0."""
    survey = SetSurvey()
    survey.committed = {"billing": {A: CommittedPosition(3, "")}, "empty": {}}
    survey.members = {"billing": {B: ["c"]}}
    survey.bounds = {A: (1, 10), B: (0, 0)}
    found = samples(made(survey))
    assert set(found) == {("billing", "orders", 0), ("billing", "orders", 1)}
    behind, fresh = found["billing", "orders", 0], found["billing", "orders", 1]
    assert (behind.start, behind.end, behind.committed, behind.holders, behind.asked_ms) == (1, 10, 3, 0, None)
    assert (fresh.end, fresh.committed, fresh.holders, fresh.asked_ms) == (0, None, 1, fresh.time_ms)
    assert (behind.committed_ms, behind.end_ms) == (None, None), "nobody said when they were written"


def test_moments_are_read_once_and_where_something_is_behind() -> None:
    """At the committed offset, or the first that is kept, and of the last record; not again while that stands."""
    survey = SetSurvey()
    survey.committed = {
        "billing": {A: CommittedPosition(3, ""), B: CommittedPosition(7, "")},
        "other": {A: CommittedPosition(5, "")},
    }
    survey.bounds = {A: (5, 10), B: (0, 7)}
    survey.times = {(A, 5): NOW_MS - 2, (A, 9): NOW_MS - 1}
    sampler = made(survey)
    for _ in range(2):
        found = samples(sampler)
        assert (found["billing", "orders", 0].committed_ms, found["billing", "orders", 0].end_ms) == (
            NOW_MS - 2,
            NOW_MS - 1,
        )
        assert found["other", "orders", 0].committed_ms == NOW_MS - 2
        assert found["billing", "orders", 1].committed_ms is None
    assert sorted(survey.read) == [(A, 5), (A, 9)]


def test_reads_are_bounded_and_everyone_has_a_turn() -> None:
    """What found no room in a round comes first in the next one, and is not known until then."""
    survey = SetSurvey()
    places = [KafkaPartition("t", each) for each in range(module.READS_MAX + 50)]
    survey.committed = {"g": {each: CommittedPosition(0, "") for each in places}}
    survey.bounds = dict.fromkeys(places, (0, 1))
    survey.times = {(each, 0): NOW_MS for each in places}
    sampler = made(survey)
    first = samples(sampler)
    assert len(survey.read) == module.READS_MAX
    assert sum(each.committed_ms is None for each in first.values()) == 50
    assert all(each.committed_ms == NOW_MS for each in samples(sampler).values())
    assert len(survey.read) == len(places)


def test_group_that_is_not_told_is_not_known() -> None:
    """Its rows stay, without figures; so with all rows where nobody answers."""
    survey = one_behind(3, 0, 10)
    sampler = made(survey)
    samples(sampler)
    survey.silent.add("billing")
    found = sampler.round()
    assert found.unreported == ["billing"]
    for queues in (found.queues, sampler.unknown().queues):
        [(key, sample)] = queues
        assert (key.group, sample.start, sample.end, sample.committed) == ("billing", None, None, None)
    survey.silent.clear()
    survey.bounds.clear()
    [sample] = samples(sampler).values()
    assert (sample.end, sample.committed) == (None, 3), "the topic is gone, the position is not"


def test_group_whose_broker_does_not_list_it_is_unknown_and_not_deleted() -> None:
    """Its rows have no figures, it is named, and the round says that the list is not complete."""
    survey = SetSurvey()
    survey.committed = {"billing": {A: CommittedPosition(3, "")}, "reports": {A: CommittedPosition(4, "")}}
    survey.bounds = {A: (0, 10)}
    sampler = made(survey)
    samples(sampler)
    survey.unlisted.add("billing")
    found = sampler.round()
    figures = {key.group: (sample.end, sample.committed) for key, sample in found.queues}
    assert figures == {"billing": (None, None), "reports": (10, 4)}
    assert (found.unreported, found.events, found.incomplete) == (["billing"], [], "broker 2 does not respond")
    survey.unlisted.clear()
    del survey.committed["billing"]
    assert [each.group for each in sampler.round().events] == ["billing"], "a complete list shows what is deleted"


@pytest.mark.parametrize(
    ("age_ms", "is_known"),
    [(0, True), (-60_000, True), (-60_001, False), (366 * 86_400_000, True), (366 * 86_400_000 + 1, False)],
)
def test_timestamp_of_a_producer_that_is_not_plausible_is_unknown(age_ms: int, is_known: bool) -> None:
    """An age follows neither from a timestamp ahead of the clock nor from one of years ago, also when time passes."""
    survey, time = one_behind(9, 0, 10), ManualClock()
    moment = time.wall_ms() - age_ms
    survey.times = {(A, 9): moment}
    sampler = made(survey, time)
    for _ in range(2):
        sample = samples(sampler)["billing", "orders", 0]
        assert (sample.committed_ms, sample.end_ms) == ((moment, moment) if is_known else (None, None))
        time.advance(3_600)
    assert len(survey.read) == 1, "the record is not read again"


def test_what_was_deleted_before_the_recording_began_is_lost() -> None:
    """It counts once, also when the recorder is restarted after a round without figures."""
    survey, time = one_behind(3, 8, 10), ManualClock()
    sampler = made(survey, time)
    lost = samples(sampler)["billing", "orders", 0]
    assert lost.expired == 5
    assert samples(sampler)["billing", "orders", 0].expired == 5
    again = made(survey, time)
    again.recall("billing", "orders", 0, lost)
    again.recall("billing", "orders", 0, QueueSample(time_ms=lost.time_ms + 1, expired=5))
    survey.bounds[A] = (9, 10)
    assert samples(again)["billing", "orders", 0].expired == 6


def test_row_that_left_is_told() -> None:
    """A group that was deleted, or a partition of it."""
    survey = SetSurvey()
    survey.committed = {"billing": {A: CommittedPosition(3, ""), B: CommittedPosition(1, "")}}
    survey.bounds = {A: (0, 10), B: (0, 1)}
    sampler = made(survey)
    samples(sampler)
    del survey.committed["billing"][B]
    [event] = sampler.round().events
    assert (event.kind, event.group, event.topic, event.queue) == (EventKind.LEFT, "billing", "orders", 1)
    assert sampler.round().events == []


def test_progress_is_seen_between_two_rounds() -> None:
    """When the offset rose; what retention took unfinished adds up, also behind a restart."""
    survey, time = one_behind(3, 0, 10), ManualClock()
    sampler = made(survey, time)
    assert samples(sampler)["billing", "orders", 0].moved_ms is None
    time.advance(10)
    survey.committed["billing"][A] = CommittedPosition(5, "")
    moved = samples(sampler)["billing", "orders", 0]
    assert moved.moved_ms == moved.answered_ms == moved.time_ms
    time.advance(10)
    survey.bounds[A] = (8, 10)
    lost = samples(sampler)["billing", "orders", 0]
    assert (lost.expired, lost.moved_ms) == (3, moved.time_ms)
    again = made(survey, time)
    again.recall("billing", "orders", 0, lost)
    survey.bounds[A] = (9, 10)
    time.advance(10)
    assert samples(again)["billing", "orders", 0].expired == 4
    survey.committed["billing"][A] = CommittedPosition(10, "")
    assert samples(again)["billing", "orders", 0].expired == 4


def test_text_of_a_node_says_what_is_finished_above() -> None:
    """A text of other programs says nothing."""
    survey = SetSurvey()
    failure = AttemptFailures(fails=1, errors=0, timeouts=0, due_wall_ms=0)
    text, _ = encode(3, [(5, 8)], {3: failure}, clean=False)
    survey.committed = {"ours": {A: CommittedPosition(3, text)}, "theirs": {A: CommittedPosition(3, "p1;4;R=")}}
    survey.bounds = {A: (0, 10)}
    found = samples(made(survey))
    assert (found["ours", "orders", 0].finished, found["ours", "orders", 0].retrying) == (3, 1)
    assert (found["theirs", "orders", 0].finished, found["theirs", "orders", 0].retrying) == (0, 0)


class Compared(str):
    """A group's name, whose comparisons are counted."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        Compared.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


@pytest.mark.parametrize("away", [False, True])
def test_round_of_many_groups_compares_no_group_with_all_others(away: bool) -> None:
    """A cluster of ten thousand takes ten times as long as one of a thousand."""
    survey, groups = SetSurvey(), 300
    survey.bounds = {A: (0, 5), B: (0, 5)}
    for number in range(groups):
        survey.committed[Compared(f"g{number}")] = {A: CommittedPosition(5, ""), B: CommittedPosition(5, "")}
    sampler = made(survey)
    assert len(sampler.round().queues) == 2 * groups
    survey.silent = {Compared(name) for name in survey.committed} if away else set()
    Compared.compared = 0
    assert len(sampler.round().queues) == 2 * groups
    assert Compared.compared <= 50 * groups
