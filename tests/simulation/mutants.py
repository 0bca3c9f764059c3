"""Nodes broken on purpose: each breaks one promise by one faulty part, handed in at a seam or put in its place.

`apply` of a mutant puts the part in (pytest's monkeypatch takes it out again) and returns what makes the node.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import pytest

import broker.format.record
import broker.log.commit_log
from broker.log.commit_batch import BatchState, CommitBatch
from broker.log.group_commit import GroupCommit
from broker.log.put import Put
from broker.opening.queue_build import QueueBuild
from broker.scheduled.timer import cancel
from broker.scheduled.timer.due import DueTimers
from broker.scheduled.timer.parts import TimerParts
from broker.store import Store
from proxy.node.node import Node
from proxy.node.opened import Opened
from proxy.node.parts import Seams
from proxy.node.turns import NodeTurns
from pyddmq.testing import SimDisk, SimFile
from tests.broken_parts import keep_half_a_batch, sync_and_settle_at_once
from tests.simulation.clients import Consumer, Producer
from tests.simulation.faults import cut_within, kill, lose_power, reset_connections, stall_readers
from tests.simulation.operator import operate, pause_group, reset_offsets
from tests.simulation.timer_changes import change_timers
from tests.simulation.world import NodeFactory, World
from upstream.delivery.pauses import Pauses
from upstream.delivery.subscription import Subscription
from upstream.job import GroupQueue, UpstreamJob
from upstream.operate import heads
from upstream.outcomes.outcomes import Outcomes
from upstream.progress.journal import AckJournal
from upstream.progress.progress import Progress
from upstream.retry.dead_letters import DeadLetters
from upstream.state import WITHOUT_PERMIT, JobEvent, JobState, move
from upstream.waiting.order import OrderQueue

LOG_FILES = ("/commitlog/", "/segment.new")

Fault = Callable[[World, Any], None]
Apply = Callable[[pytest.MonkeyPatch], NodeFactory]


class Mutant(NamedTuple):
    """A broken node.

    Attributes:
        name: What is wrong with it.
        promises: Those that it breaks; a checker must name one of them.
        fault: What happens to it, over and over.
        apply: Makes it.
        seed: The first that is tried: one that caught it when it was last looked, where that was not the first of all.
    """

    name: str
    promises: tuple[int, ...]
    fault: Fault
    apply: Apply
    seed: int = 1


def cut_log_write(world: World, random: Any) -> None:
    """Cut the power in the middle of a write to the log, or before its sync."""
    cut_within(world, random, log_only=True)


def fail_log_sync(world: World, random: Any) -> None:
    """EIO from a sync of the log, and a power loss soon after."""
    world.disk.fail("sync", path_part="commitlog", skip=random.randrange(4))
    world.run(seconds=0.3)
    world.disk.heal()
    lose_power(world, random)


def work_slowly(world: World, random: Any) -> None:
    """Clients that answer later than they should, and do not read their replies for a while."""
    for client in world.clients:
        if isinstance(client, Consumer):
            client.habits.late_share = 0.3
    stall_readers(world, random)


def operate_and_kill(world: World, random: Any) -> None:
    """An operator at work, and a kill."""
    operate(world, random)
    kill(world, random)


def reset_and_kill(world: World, random: Any) -> None:
    """An operator moves a group, and a kill."""
    reset_offsets(world, random)
    kill(world, random)


def change_timers_and_kill(world: World, random: Any) -> None:
    """Many timers, cancelled and rescheduled, and kills."""
    for client in world.clients:
        if isinstance(client, Producer):
            client.habits.wait_share = 0.4
    change_timers(world, random, kill_share=0.5)
    kill(world, random)


class _OtherFiles:
    """A disk whose files of some folder behave differently."""

    def __init__(self, disk: SimDisk, parts: tuple[str, ...], change: Callable[[SimFile], None]) -> None:
        self._disk, self._parts, self._change = disk, parts, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def open(self, path: str, *, create: bool = False) -> SimFile:
        file = self._disk.open(path, create=create)
        if any(part in path for part in self._parts):
            self._change(file)
        return file


def _with_files(parts: tuple[str, ...], change: Callable[[SimFile], None]) -> Apply:
    def make(config: Any, *, seams: Seams, registry: Any) -> Node:
        disk: Any = _OtherFiles(seams.disk, parts, change)  # type: ignore[arg-type]
        return Node(config, seams=replace(seams, disk=disk), registry=registry)

    return lambda patch: make


def _patched(owner: Any, name: str, put: Any) -> Apply:
    """Put something in the place of an attribute; `put` is given the original."""

    def apply(patch: pytest.MonkeyPatch) -> NodeFactory:
        patch.setattr(owner, name, put(getattr(owner, name)))
        return Node

    return apply


def _nothing(*_: Any) -> None:
    """Do nothing."""


def _no_sync(file: SimFile) -> None:
    file.sync = lambda: None  # type: ignore[method-assign]
    file.syncing = lambda: _nothing  # type: ignore[method-assign]


def _sync_again(file: SimFile) -> None:
    syncing = file.syncing

    def again() -> Callable[[], None]:
        end = syncing()

        def end_again() -> None:
            try:
                end()
            except OSError:
                syncing()()

        return end_again

    file.syncing = again  # type: ignore[method-assign]


def _forget_names(patch: pytest.MonkeyPatch) -> NodeFactory:
    sync_folder = SimDisk.sync_folder
    patch.setattr(SimDisk, "sync_folder", lambda disk, path: None if "commitlog" in path else sync_folder(disk, path))
    return Node


def _with_turns(patch: pytest.MonkeyPatch, turns: type[NodeTurns]) -> NodeFactory:
    patch.setattr("proxy.node.node.NodeTurns", turns)
    return Node


def _late_journal(patch: pytest.MonkeyPatch) -> NodeFactory:
    flush, sync = Progress.flush, Progress.sync

    class Late(NodeTurns):
        """Writes the ack journal 50 ms after the replies have left."""

        def end(self) -> None:
            patch.setattr(Progress, "flush", lambda progress: None)
            patch.setattr(Progress, "sync", lambda progress: None)
            super().end()
            patch.setattr(Progress, "flush", flush)
            patch.setattr(Progress, "sync", sync)
            if self._opened is not None:
                self._loop.call_later(0.05, self._opened.progress.flush)

    return _with_turns(patch, Late)


class _Nothing:
    """Stands for the store during a turn: there is nothing to flush."""

    pending = unsettled = False
    failed = None
    commit = SimpleNamespace(syncs=None, unsettled=False)


def _turn_without_store(turns: NodeTurns, opened: Opened, end: Callable[[], None]) -> None:
    turns._opened = replace(opened, store=cast("Store", _Nothing()))
    end()
    turns._opened = opened


def _hasty_publishes(patch: pytest.MonkeyPatch) -> NodeFactory:
    class Hasty(NodeTurns):
        """Settles publishes in the turn that staged them and writes them 50 ms later."""

        late = False

        def open(self, opened: Opened) -> None:
            super().open(opened)
            append = opened.store.append

            def hasty_append(puts: Any, *, done: Any = None, **options: Any) -> Any:
                positions = append(puts, **options)
                if done is not None:
                    self._loop.call_soon(done, None)
                return positions

            opened.store.append = hasty_append  # type: ignore[method-assign]

        def end(self) -> None:
            opened = self._opened
            if opened is None:
                super().end()
                return
            _turn_without_store(self, opened, super().end)
            if opened.store.pending and not self.late:
                self.late = True
                self._loop.call_later(0.05, self._write, opened.store)

        def _write(self, store: Store) -> None:
            self.late = False
            store.flush()
            super().end()

    return _with_turns(patch, Hasty)


def _visible_early(patch: pytest.MonkeyPatch) -> NodeFactory:
    class Early(NodeTurns):
        """Shows consumers what is written, and syncs and answers 50 ms later."""

        late = False

        def end(self) -> None:
            opened = self._opened
            if opened is None:
                super().end()
                return
            store = opened.store
            if store.pending:
                store.index.log.write()
                store.index.log.visible_end = store.index.log.end
                for queue, topic in list(store.commit.touched.items()):
                    queue.max_offset = queue.next_offset
                    for listener in topic.listeners:
                        listener()
            _turn_without_store(self, opened, super().end)
            if store.pending and not self.late:
                self.late = True
                self._loop.call_later(0.05, self._sync, store)

        def _sync(self, store: Store) -> None:
            self.late = False

            def write(batches: Sequence[CommitBatch]) -> None:
                store.index.log.write()
                for batch in batches:
                    batch.go_on(BatchState.WRITTEN)

            setattr(store.commit, "_write", write)  # noqa: B010 - a method, by another one
            store.flush()
            super().end()

    return _with_turns(patch, Early)


def _unordered(submit: Any) -> Any:
    def submit_many(queue: OrderQueue, jobs: Sequence[UpstreamJob], ready: Callable[[UpstreamJob], None]) -> int:
        for job in jobs:
            job.key = None
        return int(submit(queue, jobs, ready))

    return submit_many


def _without_dead_letter(write: Any) -> Any:
    def drop(letters: DeadLetters, job: UpstreamJob, reason: str, settled: Callable[..., None]) -> bool:
        letters._progress.dead_lettered(job.group_queue.tracker, job.offset)
        settled(job, None)
        return True

    return drop


def _sums_ignored(patch: pytest.MonkeyPatch) -> NodeFactory:
    """Take a record for valid when its last byte is there."""
    for module in (broker.format.record, broker.log.commit_log):
        patch.setattr(module, "sum_matches", lambda record: record[-1] == 2)
    return Node


def _failure_finishes(fail: Any) -> Any:
    def finish(outcomes: Outcomes, job: UpstreamJob, reason: str) -> None:
        job.group_queue.tracker.finish(job.offset)
        fail(outcomes, job, reason)

    return finish


def _unread(reading: Any) -> Any:
    def forget(journal: AckJournal) -> Generator[None, None, None]:
        yield from reading(journal)

    return forget


def _skip_unkept(_: Any) -> Any:
    def skip(head: heads.Head, *, force: bool, progress: Progress) -> heads.Handled:
        job, subscription = head
        if force or job.state in (JobState.OUT, JobState.HELD, JobState.BURYING):
            raise heads.HeadRefused("not this one")
        held_permit = job.state not in WITHOUT_PERMIT
        heads._take_out(head)
        move(job, JobEvent.SKIP)
        subscription.outcomes.over(job, held_permit=held_permit)
        return heads.Handled(True, "")

    return skip


def _reset_in_memory(_: Any) -> Any:
    return lambda progress, tracker, offset: tracker.reset(offset)


def _hasty_timers(deliver: Any) -> Any:
    return lambda due, now_us: deliver(due, now_us + 300_000)


def _unkept_cancel(append: Any) -> Any:
    def settle_only(parts: TimerParts, target: Any, puts: list[Put]) -> Generator[Any, None, list[str]]:
        if len(puts) > 1:
            return list((yield from append(parts, target, puts)))
        parts.take_out(target.message.physical)
        return [""]

    return settle_only


def _kept_original(append: Any) -> Any:
    def leave(parts: TimerParts, target: Any, puts: list[Put]) -> Generator[Any, None, list[str]]:
        if len(puts) == 1:
            return list((yield from append(parts, target, puts)))
        return ["", *(yield from append(parts, target, [puts[1]._replace(prepared_offset=0)]))]

    return leave


MUTANTS = (
    Mutant("the log's sync does nothing", (1, 7), lose_power, _with_files(LOG_FILES, _no_sync)),
    Mutant("publishes are answered before they are written", (1, 7), kill, _hasty_publishes),
    Mutant("consumers see records before they are durable", (1, 7), lose_power, _visible_early),
    # Promise 6: a dead letter is stored with the same flush, so its message may be over when the power takes it.
    Mutant(
        "flushes settle when their syncs begin",
        (1, 6, 7),
        lose_power,
        _patched(GroupCommit, "_sync_oldest", lambda _: sync_and_settle_at_once),
        seed=2,
    ),
    Mutant("names of new log files are not made durable", (1, 7), lose_power, _forget_names),
    Mutant(
        "a failed sync is ignored and made again", (1, 7), fail_log_sync, _with_files(LOG_FILES, _sync_again), seed=2
    ),
    Mutant("sums of records are not looked at", (1, 6, 7), cut_log_write, _sums_ignored, seed=4),
    Mutant(
        "half a batch at the log's end is kept",
        (1,),
        cut_log_write,
        _patched(QueueBuild, "finish", lambda _: keep_half_a_batch),
        seed=4,
    ),
    Mutant("acks are answered before they are journaled", (2, 3), kill, _late_journal, seed=3),
    Mutant("acks are not journaled", (2,), kill, _patched(AckJournal, "append", lambda _: lambda *_: True)),
    Mutant("the ack journal is not synced", (2,), lose_power, _with_files(("/acks/",), _no_sync)),
    Mutant("the ack journal is not read", (2,), kill, _patched(AckJournal, "reading", _unread)),
    Mutant(
        "the next of a key is released early", (3,), reset_connections, _patched(OrderQueue, "submit_many", _unordered)
    ),
    Mutant(
        "answers that cross are the present delivery's",
        (3,),
        work_slowly,
        _patched(GroupQueue, "note_unanswered", lambda _: _nothing),
        seed=3,
    ),
    Mutant(
        "exhausted messages are dropped", (6,), reset_connections, _patched(DeadLetters, "write", _without_dead_letter)
    ),
    Mutant("skips are not journaled", (2, 3), operate_and_kill, _patched(heads, "skip", _skip_unkept)),
    Mutant("resets are not journaled", (2, 3, 6), reset_and_kill, _patched(Progress, "reset", _reset_in_memory)),
    Mutant("paused groups are served", (6,), pause_group, _patched(Subscription, "set_paused", lambda _: _nothing)),
    Mutant("pauses end with the process", (6,), pause_group, _patched(Pauses, "_take", lambda _: _nothing)),
    Mutant("timers are early", (8,), change_timers_and_kill, _patched(DueTimers, "deliver_due", _hasty_timers)),
    Mutant("cancels are not stored", (8,), change_timers_and_kill, _patched(cancel, "_append", _unkept_cancel)),
    Mutant("a moved timer stays", (1, 8), change_timers_and_kill, _patched(cancel, "_append", _kept_original)),
    Mutant("a failure counts as a success", (6,), reset_connections, _patched(Outcomes, "fail", _failure_finishes)),
)


def named(name: str) -> Mutant:
    """Return the broken node of a name. Raises ValueError with the names there are."""
    found = [each for each in MUTANTS if each.name == name]
    if not found:
        raise ValueError(f"no broken build is called {name!r}; there are: {'; '.join(each.name for each in MUTANTS)}")
    return found[0]
