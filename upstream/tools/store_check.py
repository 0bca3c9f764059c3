"""The look at a whole data directory: the broker's part, and the ack journal and committed offsets on top of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from broker.errors import StoreError
from broker.opening.recovery import ProgressCallback
from broker.queues.offsets import ConsumerOffsets
from broker.retry.backlog import unread_retries
from broker.runtime.disks.read_only_disk import ReadingDisk
from broker.runtime.sealed_file import read_whole
from broker.runtime.seams import Clock, Disk
from broker.tools.check import Severity, StoreCheck, StoreFinding
from broker.tools.check.records import RecordCheck
from broker.tools.check.small_files import foreign
from upstream.progress.journal import SegmentContent, scan_segment, segment_name, segment_number, segment_numbers
from upstream.progress.replay import JournalReplay, replay

FOLDER = "pyddmq/acks"
_COME_AGAIN = "messages whose acks were in it are delivered again; none is lost"
_ROLLED = "the journal is opened, and a new segment starts with everything that could be read"


def check_data(check: StoreCheck, progress: ProgressCallback | None = None) -> Iterator[StoreFinding]:
    """Yield what is wrong with a data directory, or worth knowing.

    Args:
        check: The look at the broker's part; run here.
        progress: Called now and then with (bytes of the log looked at, bytes of the log).

    Raises:
        StoreUnreadable: There is no store.
        StoreFormatNewer: A newer version wrote it, or its journal.
        OSError: A folder cannot be read.
    """
    disk = ReadingDisk(check.disk)
    # The journal is read before the log: what it says is then in the log for certain.
    found = list(check_journal(check.root, disk=disk))
    yield from check.run(progress)
    yield from found
    if not check.live and check.records is not None:
        yield from _check_offsets(check.root, check.records, disk=disk, clock=check.clock)


def check_journal(root: str, *, disk: Disk) -> Iterator[StoreFinding]:
    """Check the segments of the ack journal. Raises StoreFormatNewer."""
    numbers = segment_numbers(f"{root}/{FOLDER}", disk)
    for name in disk.list(f"{root}/{FOLDER}"):
        if name != "spare" and segment_number(name) is None:
            yield foreign(f"{FOLDER}/{name}")
    contents = [content for number in numbers if (content := read_segment(root, number, disk=disk)) is not None]
    whole = [content for content in contents if content.whole]
    if contents and not whole:
        yield _finding(
            "journal_snapshot_lost",
            contents[-1].number,
            text="no segment has a whole snapshot",
            costs="acks above the offsets in consumerOffset.json may be lost; " + _COME_AGAIN,
            repair="a new segment; groups that are known nowhere else start at the oldest message",
        )
    elif whole:
        intact = [content for content in whole if content.intact]
        yield from _check_segment((intact or whole)[-1])
    elif disk.exists(f"{root}/config/consumerOffset.json"):
        yield StoreFinding(
            kind="journal_missing",
            severity=Severity.WARNING if disk.exists(f"{root}/pyddmq/consumerOffset.json") else Severity.NOTE,
            file=FOLDER,
            text="there is no ack journal",
            costs="deliveries continue at consumerOffset.json; messages acknowledged above it are delivered again",
            repair=_ROLLED,
        )


def read_segment(root: str, number: int, *, disk: Disk) -> SegmentContent | None:
    """Return what a segment holds, None when its owner has given it up. Raises StoreFormatNewer."""
    raw = read_whole(disk, f"{root}/{_path(number)}")
    return None if raw is None else scan_segment(number, raw, folder=f"{root}/{FOLDER}")


def _check_segment(content: SegmentContent) -> Iterator[StoreFinding]:
    for position in content.damaged_at:
        yield _finding(
            "journal_damaged", content.number, position=position, text="a block is damaged", costs=_COME_AGAIN
        )
    orphans = replay(content.entries).orphans
    if orphans:
        yield _finding(
            "journal_orphans",
            content.number,
            text=f"{orphans} entries belong to queues whose declaration is damaged",
            costs=_COME_AGAIN,
            count=orphans,
        )
    if content.torn:
        yield StoreFinding(
            kind="journal_torn",
            severity=Severity.NOTE,
            file=_path(content.number),
            text="a write at its end was interrupted",
            costs="nothing that was acknowledged",
        )


def _check_offsets(root: str, records: RecordCheck, *, disk: ReadingDisk, clock: Clock) -> Iterator[StoreFinding]:
    """Look for offsets and acks beyond the end of their queue, and for retries that their groups have not read."""
    ends = records.queue_ends()
    try:
        offsets = list(ConsumerOffsets.open(root, disk=disk, clock=clock).items())
    except (StoreError, OSError):
        # Its file is reported already, or its folder is not there.
        offsets = []
    for group, topic, queue_id, offset in offsets:
        end = ends.get((topic, queue_id))
        if end is not None and offset > end:
            yield _beyond("config/consumerOffset.json", group, topic, queue_id, offset, end)
    yield from _check_retries(records, offsets)
    for each in read_journal(root, ends, disk).trackers.values():
        tracker = each.tracker
        end = ends.get((tracker.topic, tracker.queue_id))
        if end is not None and each.high > end:
            yield _beyond(FOLDER, tracker.group, tracker.topic, tracker.queue_id, each.high, end)


def _check_retries(records: RecordCheck, offsets: Iterable[tuple[str, str, int, int]]) -> Iterator[StoreFinding]:
    committed = {(group, topic, queue_id): offset for group, topic, queue_id, offset in offsets}
    for each in unread_retries(
        records.retries_stored(), records.topics.by_name.keys(), lambda *queue: committed.get(queue)
    ):
        yield StoreFinding(
            kind="retries_unread",
            severity=Severity.NOTE,
            file="consumequeue",
            text=f"{each.count:,} messages in {each.topic} are not consumed",
            costs="only RocketMQ's POP consumers receive them"
            if each.pop
            else f"group {each.group} receives them only with `retryTopic: true`",
            count=each.count,
        )


def read_journal(root: str, ends: Mapping[tuple[str, int], int], disk: Disk) -> JournalReplay:
    """Return what the newest whole segment of the ack journal says; nothing where there is none.

    Args:
        root: The data directory, of a running node or a stopped one.
        ends: Where queues end, as far as they are known.
        disk: Where it is.

    Raises:
        StoreFormatNewer: A newer version wrote it.
    """
    for number in reversed(segment_numbers(f"{root}/{FOLDER}", disk)):
        content = read_segment(root, number, disk=disk)
        if content is not None and content.whole:
            return replay(content.entries, lambda topic, queue_id: ends.get((topic, queue_id)))
    return JournalReplay()


def _beyond(file: str, *place: str | int) -> StoreFinding:
    group, topic, queue_id, offset, end = place
    return StoreFinding(
        kind="offset_beyond_log",
        severity=Severity.WARNING,
        file=file,
        text=f"group {group} is at {offset} of queue {queue_id} of topic {topic}, which ends at {end}",
        costs="no data; the next start sets it to the end, so that no later message is skipped",
        repair="set to the end of its queue",
    )


def _finding(
    kind: str,
    number: int,
    *,
    text: str,
    costs: str,
    position: int | None = None,
    count: int = 1,
    repair: str = _ROLLED,
) -> StoreFinding:
    return StoreFinding(
        kind=kind,
        severity=Severity.DAMAGE,
        file=_path(number),
        position=position,
        text=text,
        costs=costs,
        count=count,
        repair=repair,
    )


def _path(number: int) -> str:
    return f"{FOLDER}/{segment_name(number)}"
