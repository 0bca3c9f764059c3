"""What will behave differently when a store goes to RocketMQ, or has come from it: counted in that very store.

Each `Point` is one thing, with how many there are and the first names; what a store has none of is left out. The store
is opened on a disk of which not a byte changes (`stopped_store`), so it is seen as its next owner would find it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from broker.errors import DamagedRecord, RecordGone
from broker.format.properties import find_property
from broker.format.record import split
from broker.opening.foreign import in_layout
from broker.opening.store_json import FORMAT_VERSION
from broker.queues.consume_queue import FILLER_SIZE, UNIT_BYTES
from broker.retry.backlog import unread_in
from broker.runtime.sealed_file import SealedFile
from broker.scheduled.pop_records import REVIVE_PREFIX
from broker.scheduled.recurring.ended_loops import LOOP_FEATURE
from broker.tools.interchange import names_of, timer_log_bytes_of
from broker.transaction import names as commit
from proxy.cli.store.stopped_queries import Answers, undecided_of
from upstream.delivery.pauses import Pauses
from upstream.embedded.taking_over import POPPED_TAKEN
from upstream.progress.reconcile import OFFSETS_FOREIGN

if TYPE_CHECKING:
    from broker.queues.consume_queue import ConsumeQueue
    from broker.runtime.seams import Disk
    from proxy.cli.store.stopped_store import StoppedStore
    from upstream.progress.progress import Progress

NAMES_SHOWN = 10
_PAGE = 1000
_BLOCK_UNITS = 4096
_THEIR_SIZES = {
    "mappedFileSizeCommitLog": 1 << 30,
    "mappedFileSizeConsumeQueue": 6_000_000,
    "maxHashSlotNum": 5_000_000,
    "maxIndexNum": 20_000_000,
    "mappedFileSizeTimerLog": 100 << 20,
}
"""RocketMQ's defaults."""
_COMMIT_DELAYS = (commit.LEVEL, commit.DELIVER_AT, commit.DELAY_MS)


@dataclass(frozen=True, slots=True)
class Point:
    """One thing that will be different.

    Attributes:
        kind: Its name, stable.
        count: How many there are.
        names: Which; the first NAMES_SHOWN, with their counts where there are several of each.
        text: What happens to them.
        advice: What to do about it; empty where there is nothing to do.
        needs_accept: Messages are not delivered, or are delivered again: an operator accepts it by `--accept`.
    """

    kind: str
    count: int
    names: Sequence[str]
    text: str
    advice: str = ""
    needs_accept: bool = False


class Before(NamedTuple):
    """What the next opening changes, and so is looked at before it.

    Attributes:
        older: The store is of an older format.
        clean: Its last owner closed it.
        names: Of cluster and broker.
    """

    older: bool
    clean: bool
    names: tuple[str, str]


def before(root: str, disk: Disk) -> Before:
    """Look at a store that is not open. Raises StoreError, OSError."""
    found = SealedFile(disk, f"{root}/pyddmq/store.json").load()
    return Before(
        older=found is not None and found["format"] < FORMAT_VERSION,
        clean=not disk.exists(f"{root}/abort"),
        names=names_of(root, disk=disk),
    )


def to_rocketmq(found: StoppedStore, progress: Progress, seen: Before) -> Iterator[Point]:
    """Yield what RocketMQ does otherwise with a store."""
    yield _sizes(found, seen)
    if not seen.clean:
        text = "the last owner did not close the store: RocketMQ scans the log, and may deliver again"
        yield Point("not_closed", 1, (), text, "start and stop the node once")
    yield from _queues(found, seen)
    acks, tried = Counter[str](), Counter[str]()
    for (group, topic, _), tracker in progress.trackers.items():
        acks[f"{group}/{topic}"] += tracker.ahead
        tried[f"{group}/{topic}"] += len(tracker.failures)
    yield from _counted(
        "acks_above",
        acks,
        "messages are acknowledged above their group's committed offset; RocketMQ delivers them again",
        "let the groups finish the messages below",
    )
    yield from _counted("attempts", tried, "messages failed before; RocketMQ counts their attempts from 0")
    pauses = Pauses.open(found.root, disk=found.runtime.disk, clock=found.runtime.clock)
    paused = [group if topic is None else f"{group}/{topic}" for group, topic in pauses.paused]
    yield from _named("paused", paused, "are paused here; RocketMQ delivers to them")
    answers = Answers(found)
    yield from _levels_there(answers)
    yield from _timers(answers, there=True)
    yield from _transactions(found, answers, there=True)


def from_rocketmq(found: StoppedStore, progress: Progress, seen: Before) -> Iterator[Point]:
    """Yield what this broker does otherwise with a store that RocketMQ had."""
    yield _sizes(found, seen)
    for each in in_layout(found.root, found.runtime.disk):
        advice = "start the node once with `pyddmq serve --accept`" if each.content else ""
        yield Point(each.kind, each.count, (), each.sentence, advice, needs_accept=bool(each.content))
    if not seen.clean:
        yield Point("not_closed", 1, (), "RocketMQ did not close the store: its last deliveries may be repeated")
    facts, metrics = found.store.recovery, found.runtime.metrics
    yield from _named(
        "topics_deleted",
        sorted(facts.deleted),
        "were deleted there and are deleted here too; created again, they continue after their former offsets",
    )
    groups = sorted({group for group, _, _ in progress.trackers})
    yield from _counted(
        "popped",
        Counter({group: metrics.value(POPPED_TAKEN, group) for group in groups}),
        "messages are in flight with POP consumers, below the committed offset: they are redelivered, in place",
    )
    yield from _retries(found, progress)
    yield from _counted(
        "offsets_moved",
        Counter({group: metrics.value(OFFSETS_FOREIGN, group) for group in groups}),
        "queues have other offsets than were written here: RocketMQ's win, acks above them are dropped",
    )
    yield from _named(
        "loops_interrupted",
        [f"at {physical}" for physical in facts.marked.get(LOOP_FEATURE.mark, ())],
        "occurrences of loops were delivered there and none follows: the loops continue with the missed ones",
    )
    answers = Answers(found)
    levels = {str(each.level): each.pending for each in answers.opened_delays().levels.values()}
    yield from _counted(
        "levels",
        Counter(levels),
        "messages of delay levels are pending, and are delivered here",
        "give the node RocketMQ's messageDelayLevel",
    )
    yield from _timers(answers, there=False)
    yield from _transactions(found, answers, there=False)


def _sizes(found: StoppedStore, seen: Before) -> Point:
    """File sizes, which each side takes from its own configuration."""
    options = found.store.options
    sizes = {
        "mappedFileSizeCommitLog": options.segment_bytes,
        "mappedFileSizeConsumeQueue": options.queue_file_units * UNIT_BYTES,
        "maxHashSlotNum": options.index_slots,
        "maxIndexNum": options.index_entries,
        "mappedFileSizeTimerLog": timer_log_bytes_of(found.root, disk=found.runtime.disk),
    }
    other = [f"{name} = {size}" for name, size in sizes.items() if size != _THEIR_SIZES[name]]
    cluster, broker = seen.names
    return Point(
        "sizes",
        len(other),
        other,
        f"file sizes are not RocketMQ's defaults; its names are {cluster} (cluster) and {broker} (broker)",
        "start RocketMQ with the output of `pyddmq store broker-conf`; a node needs segmentBytes: "
        f"{options.segment_bytes} and queueFileUnits: {options.queue_file_units}",
    )


def _queues(found: StoppedStore, seen: Before) -> Iterator[Point]:
    """Fillers, and queues that RocketMQ would number from 0."""
    fillers, anew = Counter[str](), []
    for name, topic in found.store.topics.items():
        for queue in topic.queues:
            fillers[name] += _fillers_of(queue)
            if queue.base_offset and queue.max_offset == queue.base_offset:
                anew.append(f"{name}/{queue.queue_id}")
    text = "the messages of these offsets were lost: consumers without a tag filter receive the next message twice"
    yield from _counted("fillers", fillers, text)
    if seen.older:
        text = "the store has an older format, whose filler records hide messages from RocketMQ"
        yield Point("format_old", 1, (), text, "start and stop a node of this version once")
    yield from _named(
        "topics_made_again",
        anew,
        "were created again and have no message yet: RocketMQ numbers them from 0, and this node skips "
        "messages that RocketMQ stores there",
        "publish a message to each of these queues first",
    )


def _fillers_of(queue: ConsumeQueue) -> int:
    """Count fillers by their form, without reading a record."""
    count, last = 0, None
    for at in range(queue.min_offset, queue.max_offset, _BLOCK_UNITS):
        for physical, size, _ in queue.read_unchecked(at, _BLOCK_UNITS):
            count += size == FILLER_SIZE or (size > 0 and physical == last)
            last = physical
    return count


def _levels_there(answers: Answers) -> Iterator[Point]:
    delays = answers.opened_delays()
    cancelled, refused, pending = Counter[str](), Counter[str](), Counter[str]()
    for each in delays.levels.values():
        cancelled[f"level {each.level}"] = len(each.completed)
        refused[f"level {each.level}"] = len(each.refused)
        pending[f"level {each.level}"] = each.pending
    yield from _counted(
        "levels_settled",
        cancelled,
        "messages of delay levels were cancelled, or delivered after one that still waits: RocketMQ does not "
        "know this and delivers them",
        "wait until what is before them is delivered",
    )
    yield from _counted(
        "levels_aside",
        refused,
        "messages of delay levels were refused by their topics: RocketMQ stops at them, or delivers later ones again",
        "`pyddmq timers delays` shows why",
    )
    yield from _counted(
        "levels", pending, "messages of delay levels are pending; RocketMQ delivers them by its level list"
    )


def _timers(answers: Answers, *, there: bool) -> Iterator[Point]:
    timers = answers.opened_timers()
    loops, revive = [], Counter[str]()
    cursor: str | None = None
    while timers.pending:
        parameters = {"limit": str(_PAGE)} | ({} if cursor is None else {"cursor": cursor})
        page = answers.timers(parameters)
        loops += [f"{each.topic}: {each.loop.id}" for each in page.timers if each.loop is not None]
        revive.update(each.topic for each in page.timers if each.topic.startswith(REVIVE_PREFIX))
        cursor = page.cursor
        if cursor is None:
            break
    pending = timers.pending - revive.total()
    if pending and there:
        yield Point("timers", pending, (), "timed messages are pending: RocketMQ delivers them up to a second late")
    elif pending:
        yield Point("timers", pending, (), "timed messages are pending: RocketMQ's are due at the end of their second")
    if not there:
        return
    yield from _named(
        "loops",
        loops,
        "loops are pending: RocketMQ delivers one occurrence of each, then they pause until the store returns",
    )
    if timers.due.refused:
        text = "timed messages were refused by their topics; they are not in RocketMQ's wheel"
        yield Point("timers_aside", len(timers.due.refused), (), text, "`pyddmq timers list` shows why")
    log, next_ms = timers.table.log, timers.table.next_ms
    units = (log.unit(log.position(number)) for number in range(log.first, log.count))
    # The unit of what was cancelled is emptied in its slot.
    cancels = sum(not unit.size and unit.slot_ms >= next_ms for unit in units)
    if cancels:
        text = "cancelled timed messages are not due yet: RocketMQ warns three times of each, and delivers none"
        yield Point("timers_cancelled", cancels, (), text)


def _transactions(found: StoppedStore, answers: Answers, *, there: bool) -> Iterator[Point]:
    undecided, delayed = Counter[str](), Counter[str]()
    for half in undecided_of(answers.opened_transactions()):
        undecided[f"{half.group}/{half.topic}"] += 1
        try:
            block = split(found.store.read(half.physical, half.bytes))[1]
        except (DamagedRecord, RecordGone):
            continue
        if any(find_property(bytes(block), name) for name in _COMMIT_DELAYS):
            delayed[f"{half.group}/{half.topic}"] += 1
    other = (
        "RocketMQ checks back with their producers, counting from 0"
        if there
        else "this node checks back with their producers"
    )
    yield from _counted("transactions", undecided, f"transactions are undecided: {other}")
    if there:
        yield from _counted(
            "transactions_delayed",
            delayed,
            "undecided transactions have a delay: RocketMQ delivers them at their commit",
            "have their producers decide them first",
        )


def _retries(found: StoppedStore, progress: Progress) -> Iterator[Point]:
    """What RocketMQ's consumers failed waits in retry topics, which a group here does not read by itself."""
    unread = list(unread_in(found.store, progress.offsets.get))
    yield from _counted(
        "retries",
        Counter({each.topic: each.count for each in unread if not each.pop}),
        "messages that consumers failed wait in the retry topics of their groups; a group without `retryTopic: true` "
        "does not receive them",
        "set `retryTopic: true` for these groups, or let RocketMQ's consumers finish the messages first",
        needs_accept=True,
    )
    yield from _counted(
        "pop_retries",
        Counter({each.topic: each.count for each in unread if each.pop}),
        "messages that POP consumers failed wait in retry topics of POP's own, which no group here reads",
        "let the POP consumers finish them in RocketMQ first",
        needs_accept=True,
    )


def _counted(
    kind: str, counts: Mapping[str, int], text: str, advice: str = "", *, needs_accept: bool = False
) -> Iterator[Point]:
    """One point for what has counts by name, if there is any."""
    found = [(name, count) for name, count in sorted(counts.items()) if count > 0]
    if found:
        names = [f"{name}: {count}" for name, count in found[:NAMES_SHOWN]]
        yield Point(kind, sum(count for _, count in found), names, text, advice, needs_accept)


def _named(kind: str, names: Sequence[str], text: str, advice: str = "") -> Iterator[Point]:
    if names:
        yield Point(kind, len(names), names[:NAMES_SHOWN], text, advice)


def document(points: Sequence[Point], direction: str) -> dict[str, Any]:
    """Return the points as `--json` prints them."""
    return {
        "direction": direction,
        "points": [{**asdict(each), "names": list(each.names)} for each in points],
    }


__all__ = ["Before", "Point", "before", "document", "from_rocketmq", "to_rocketmq"]
