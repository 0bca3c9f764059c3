"""The lag journal of a Kafka cluster."""

from __future__ import annotations

import pytest

from lag.journal.files import Tier, parse
from lag.journal.reader import EventRow, JournalQuery, JournalReader, QueueRow
from lag.journal.writer import JournalOrigin
from proxy.recording.cluster_recording import ClusterRecording, JournalOfOthers
from proxy.recording.cluster_samples import ClusterSampler
from pyddmq.testing.manual_time import ManualClock
from pyddmq.testing.sim_disk import SimDisk
from tests.unit.proxy.recording.cluster_survey import SetSurvey
from upstream.kafka.all_groups import CommittedPosition
from upstream.kafka.link import KafkaFailure, KafkaPartition

A = KafkaPartition("orders", 0)
FOLDER = "journal"


def survey_of(offset: int) -> SetSurvey:
    """One group with one row."""
    survey = SetSurvey()
    survey.committed = {"billing": {A: CommittedPosition(offset, "")}}
    survey.bounds = {A: (0, 10)}
    return survey


def recording(disk: SimDisk, time: ManualClock, survey: SetSurvey, node: str = "n", epoch: int = 1) -> ClusterRecording:
    """One over the folder."""
    return ClusterRecording(
        ClusterSampler(survey, time, cluster="main", node=node),
        disk=disk,
        folder=FOLDER,
        clock=time,
        origin=JournalOrigin(cluster="main", node=node, epoch=epoch),
        every_ms=10_000,
    )


def rows(disk: SimDisk) -> list[QueueRow]:
    """All samples."""
    return [each for each in JournalReader(disk, FOLDER).read(JournalQuery()) if isinstance(each, QueueRow)]


def test_round_that_nobody_answers_is_written_as_not_known() -> None:
    """And told; the next one has figures again."""
    disk, time, survey = SimDisk(), ManualClock(), survey_of(3)
    found = recording(disk, time, survey)
    for failure in (None, KafkaFailure("ALL_BROKERS_DOWN", "nobody there"), None):
        survey.failure = failure
        recorded = found.round()
        assert (recorded.failure, recorded.trouble) == (failure, None)
        time.advance(10)
    found.close()
    assert [(each.sample.end, each.sample.committed) for each in rows(disk)] == [(10, 3), (None, None), (10, 3)]
    events = [each for each in JournalReader(disk, FOLDER).read(JournalQuery()) if isinstance(each, EventRow)]
    assert [each.event.kind.value for each in events] == ["start", "stop"]


def test_journal_goes_on_after_a_stop() -> None:
    """Counts of what was lost go on; minutes are made of hours that are over."""
    disk, time, survey = SimDisk(), ManualClock(), survey_of(3)
    found = recording(disk, time, survey)
    found.round()
    found.close()
    survey.bounds[A] = (7, 10)
    time.advance(10)
    again = recording(disk, time, survey, epoch=2)
    again.round()
    assert [each.sample.expired for each in rows(disk)] == [0, 4]
    time.advance(7_200)
    again.round()
    again.close()
    files = [file for name in disk.list(FOLDER) if (file := parse(name)) is not None]
    assert any(each.tier is Tier.MINUTE for each in files)


@pytest.mark.parametrize("hours", [0, 30])
def test_what_was_lost_is_known_however_long_nobody_recorded(hours: int) -> None:
    """By the newest round, as on a node."""
    disk, time, survey = SimDisk(), ManualClock(), survey_of(3)
    found = recording(disk, time, survey)
    found.round()
    survey.bounds[A] = (7, 10)
    time.advance(10)
    found.round()
    found.close()
    time.advance(10 + hours * 3_600)
    survey.committed["billing"][A] = CommittedPosition(9, "")
    again = recording(disk, time, survey, epoch=2)
    again.round()
    again.close()
    assert [each.sample.expired for each in rows(disk)] == [0, 4, 4]


def test_journal_of_a_node_is_left_alone() -> None:
    """Whoever names its folder is told."""
    disk, time = SimDisk(), ManualClock()
    first = recording(disk, time, survey_of(3))
    first.round()
    first.close()
    with pytest.raises(JournalOfOthers, match="has the lag journal of n in main"):
        recording(disk, time, survey_of(3), node="other")


@pytest.mark.parametrize("offset", [(1 << 63) - 1, 1 << 62])
def test_offset_that_cannot_be_costs_no_other_group_its_round(offset: int) -> None:
    """A client of Kafka may commit any; it is ahead of the partition in any case."""
    disk, time, survey = SimDisk(), ManualClock(), survey_of(3)
    survey.committed["wild"] = {A: CommittedPosition(offset, "")}
    found = recording(disk, time, survey)
    for _ in range(2):
        assert found.round().trouble is None
        time.advance(10)
    found.close()
    kept = {each.key.group: each.sample for each in rows(disk)}
    assert kept["billing"].committed == 3
    assert kept["wild"].committed is not None
    assert kept["wild"].end is not None
    assert kept["wild"].committed > kept["wild"].end
