"""Who gets the log's last space: publishes stop first, the broker's own records have a file set aside (D5)."""

from __future__ import annotations

import errno

import pytest
from structlog.testing import capture_logs

from broker.errors import DiskFull, StoreFailed
from broker.log.commit_log import CommitLog, segment_name
from broker.log.put import Put
from broker.log.segment_space import FREE_SEGMENTS_MIN, SegmentSpace
from broker.queues.topics import Topic
from broker.runtime.bundle import runtime_of
from broker.runtime.file_writes import FileWrites
from broker.runtime.metrics import Metrics
from pyddmq.testing import ManualClock, SimDisk

SEGMENT = 1024
SPARE = "/s/pyddmq/segment.spare"
PUBLISH = [Put(Topic("t", system=False), 0, b"", b"")]
OWN = [Put(Topic("%DLQ%g", system=True), 0, b"", b"")]
WAITS = [Put(Topic("SCHEDULE_TOPIC_XXXX", system=True), 0, b"", b"")]


class Space:
    """Segment space over a log of small segments, of which one is filled up to its last 200 bytes."""

    def __init__(self, *, capacity_bytes: int | None = None) -> None:
        self.disk = SimDisk(capacity_bytes=capacity_bytes)
        self.disk.make_folder("/s/commitlog")
        self.disk.make_folder("/s/pyddmq")
        self.log = CommitLog("/s", disk=self.disk, segment_bytes=SEGMENT)
        self.metrics = Metrics()
        self.failures: list[str] = []
        self.segment_space = SegmentSpace(
            "/s",
            log=self.log,
            runtime=runtime_of(self.disk, ManualClock(), metrics=self.metrics),
            fail=self._fail,
            file_writes=FileWrites(self.disk),
            published={"SCHEDULE_TOPIC_XXXX"},
        )

    def _fail(self, what: str, error: OSError) -> StoreFailed:
        self.failures.append(what)
        return StoreFailed(what, error)

    def put(self, puts: list[Put], size: int) -> int:
        """Append one record of so many bytes; return where it went."""
        [at] = self.segment_space.reserve(puts, [size], atomic=False)
        self.log.stage([at], [size], [bytes(size)])
        return at

    def fill(self) -> None:
        """Set the spare file aside, take the rest of the disk away, and leave 200 bytes of the first segment."""
        self.segment_space.set_aside()
        self.put(PUBLISH, SEGMENT - 200)
        self.disk.capacity_bytes = 2 * SEGMENT


def test_full_disk_refuses_publishes_and_takes_the_brokers_own_records() -> None:
    """The refusal names the directory and is counted; a dead letter goes to the file that was set aside."""
    space = Space()
    space.fill()
    with pytest.raises(DiskFull, match="/s"):
        space.put(PUBLISH, 500)
    assert space.metrics.value("pyddmq_store_refused_total", "disk_full") == 1
    assert space.put(OWN, 500) == SEGMENT
    assert (space.segment_space.lent, space.segment_space.reserve_bytes) == (1, 0)
    assert not space.disk.exists(SPARE)
    assert space.log.segments[1].file.size() == SEGMENT


def test_first_segment_is_claimed_in_the_background() -> None:
    """So the first publish waits for none of its syncs, however slow the disk is."""
    space = Space()
    space.segment_space.tend()
    assert list(space.log.segments) == [0]
    before = space.disk.operations
    space.put(PUBLISH, 100)
    assert space.disk.operations == before


def test_message_that_waits_is_a_publish_though_its_topic_is_the_brokers() -> None:
    """Otherwise delayed messages would use up what dead letters need; so would a batch that holds one publish."""
    space = Space()
    space.fill()
    for puts in (WAITS, OWN + PUBLISH):
        with pytest.raises(DiskFull):
            space.segment_space.reserve(puts, [250] * len(puts), atomic=False)
    assert space.segment_space.lent is None


def test_publishes_are_refused_as_long_as_no_further_file_can_be_claimed() -> None:
    """What asks is told from the disk's space, not from a publish that would have to be tried."""
    space = Space()
    space.fill()
    reported = [space.segment_space.refuses]
    with pytest.raises(DiskFull):
        space.put(PUBLISH, 500)
    for capacity_bytes in (2 * SEGMENT, 3 * SEGMENT - 1, 3 * SEGMENT):
        space.disk.capacity_bytes = capacity_bytes
        reported.append(space.segment_space.refuses)
    assert reported == [False, True, True, False]


def test_spare_is_set_aside_only_where_a_publish_has_a_file_too() -> None:
    """A disk with room for one file is used for messages, and that is said."""
    space = Space(capacity_bytes=FREE_SEGMENTS_MIN * SEGMENT - 1)
    with capture_logs() as logs:
        space.segment_space.set_aside()
    assert space.segment_space.reserve_bytes == 0
    assert not space.disk.exists(SPARE)
    assert [each["event"] for each in logs] == ["reserve_missing"]
    space.disk.capacity_bytes = FREE_SEGMENTS_MIN * SEGMENT
    space.segment_space.set_aside()
    assert space.segment_space.reserve_bytes == SEGMENT


def test_spare_of_an_earlier_process_is_taken_on_a_full_disk() -> None:
    """Its space is claimed already; one of another size, of a stop half-way, is made whole first."""
    space = Space()
    space.disk.open(SPARE, create=True).allocate(SEGMENT)
    space.disk.capacity_bytes = SEGMENT
    space.segment_space.set_aside()
    assert space.segment_space.reserve_bytes == SEGMENT
    space = Space()
    space.disk.open(SPARE, create=True).write(0, [b"\xff" * 100])
    space.segment_space.set_aside()
    assert space.disk.open(SPARE).read(0, SEGMENT) == bytes(SEGMENT)


def test_spare_for_which_there_is_no_space_leaves_no_file() -> None:
    """A half-made one would take space that a publish could use."""
    space = Space()
    space.disk.fail("allocate", error=errno.ENOSPC)
    space.segment_space.set_aside()
    assert space.segment_space.reserve_bytes == 0
    assert not space.disk.exists(SPARE)


def test_next_segment_is_claimed_when_half_of_the_present_one_is_used() -> None:
    """Once, and not before: an append then makes no file."""
    space = Space()
    space.put(PUBLISH, SEGMENT // 2 - 1)
    space.segment_space.tend()
    assert list(space.log.segments) == [0]
    space.put(PUBLISH, 1)
    space.segment_space.tend()
    space.segment_space.tend()
    assert list(space.log.segments) == [0, 1]
    assert space.disk.list("/s/commitlog") == [segment_name(0), segment_name(SEGMENT)]


def test_claim_ahead_that_finds_the_disk_full_is_quiet_and_any_other_failure_stops_the_store() -> None:
    """There is still space in the present file; a disk that does not work is another matter."""
    space = Space()
    space.put(PUBLISH, SEGMENT // 2)
    space.segment_space.set_aside()
    space.disk.fail("allocate", error=errno.ENOSPC)
    space.segment_space.tend()
    assert space.failures == []
    space.disk.fail("allocate", error=errno.EIO)
    space.segment_space.tend()
    assert space.failures == ["reserving a commit-log file"]
    assert list(space.log.segments) == [0]


def test_disk_that_fails_in_an_append_stops_the_store() -> None:
    """While a file is claimed, and while the spare is put in place."""
    space = Space()
    space.fill()
    space.disk.fail("create")
    with pytest.raises(StoreFailed, match="reserving a commit-log file"):
        space.put(PUBLISH, 500)
    space.disk.fail("replace", path_part="commitlog")
    with pytest.raises(StoreFailed, match="using the spare commit-log file"):
        space.put(OWN, 500)
