"""How far a scan is: what it looked at, and where another continues."""

from __future__ import annotations

from upstream.kafka.link import KafkaRecord, TopicScan
from upstream.kafka.scan import ScanProgress


def anything(_: KafkaRecord) -> bool:
    """Whatever it is."""
    return True


def record(partition: int, offset: int) -> KafkaRecord:
    """A record."""
    return KafkaRecord("t", partition, offset, 0, None, b"x", ())


def test_partition_that_ends_before_its_bound_is_reached_up_to_its_last_record() -> None:
    """An open transaction hides what is behind it, which the next scan must not pass over."""
    progress = ScanProgress(TopicScan("t", anything), {0: (2, 10), 1: (0, 0), 2: (0, 3)})
    progress.take(record(0, 2), 1)
    progress.take(record(0, 3), 1)
    progress.end()
    assert progress.place == (2, 0)
    assert progress.result().reached == {0: 4, 1: 0, 2: 0}
    for offset in range(3):
        progress.take(record(2, offset), 1)
    found = progress.result()
    assert found.reached == {0: 4, 1: 0, 2: 3}
    assert [each is None for each in (found.cursor, progress.place)] == [True, True]
    assert found.bounds == {0: (2, 10), 1: (0, 0), 2: (0, 3)}


def test_scan_begins_at_the_offsets_of_each_partition() -> None:
    """Of others at the first that is kept; one without further records is passed over."""
    progress = ScanProgress(TopicScan("t", anything, offsets={0: 5, 1: 9}), {0: (0, 7), 1: (0, 9), 2: (4, 6)})
    assert progress.place == (0, 5)
    progress.end()
    assert progress.place == (2, 4)
    assert progress.result().reached == {0: 5, 1: 9, 2: 4}


def test_scan_of_no_bytes_says_what_there_is() -> None:
    """It looks at nothing."""
    progress = ScanProgress(TopicScan("t", anything, bytes_max=0), {0: (0, 7)})
    assert progress.place is None
    assert progress.result()[:3] == ([], (0, 0), 0.0)
    assert progress.result().bounds == {0: (0, 7)}
