"""Builds broken on purpose, each in one part of what a table tells; a kill point must show it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, NamedTuple

import pytest

import broker.deduplication.deduplication
import broker.scheduled.delay.cancel
import broker.scheduled.timer.cancel
import broker.scheduled.timer.opening
from broker.consumer.retry_counts import RetryCounts
from broker.deduplication.deduplication import Deduplication
from broker.errors import StoreError
from broker.log.group_commit import GroupCommit
from broker.opening.queue_build import QueueBuild
from broker.retry.finished import Finished
from broker.retry.redrive import Redrives
from broker.scheduled.delay.due import DueDelays
from broker.scheduled.delay.level_queue import DelayLevel
from broker.scheduled.release_plain import Plain, PlainRelease
from broker.scheduled.timer.pending.due_timers import Coming
from broker.scheduled.timer.pending.table import TimerTable
from broker.store import Store
from broker.transaction.names import Fate
from broker.transaction.ops import OpWriter
from broker.transaction.replay import TransactionReplay
from broker.transaction.states import HalfStates
from tests.broken_parts import keep_half_a_batch, sync_and_settle_at_once
from tests.lifecycle.batches import Batches
from tests.lifecycle.dead_letters import DeadLetters
from tests.lifecycle.delays import Delays
from tests.lifecycle.halves import Halves
from tests.lifecycle.loops import Loops
from tests.lifecycle.numbered import Numbered
from tests.lifecycle.orderly import OrderlyRetries
from tests.lifecycle.retries import Retries
from tests.lifecycle.retry_topic import RetryTopicRetries
from tests.lifecycle.scenario import Scenario
from tests.lifecycle.timers import Timers

Apply = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """A broken build: what is wrong with it, the run that shows it, a word of what is said, and what breaks it.

    `beside`: that run is made with syncs beside the loop.
    """

    name: str
    kind: type[Scenario]
    said: str
    apply: Apply
    beside: bool = False


def _patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Apply:
    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owner, name, make(getattr(owner, name)))

    return apply


def _nothing_taken(_: Any) -> Any:
    return lambda _deduplication, _record: None


def _all_of_it(_: Any) -> Any:
    return lambda places, _end: places


def _no_checkpoint(load: Any) -> Any:
    def forgotten(deduplication: Deduplication) -> int | None:
        end: int | None = load(deduplication)
        deduplication.window.clear()
        return end

    return forgotten


def _unnamed(release: Any) -> Any:
    def without_origins(*args: Any) -> Plain:
        made: Plain = release(*args)
        return made._replace(puts=[each._replace(prepared_offset=0) for each in made.puts])

    return without_origins


def _hurried(due: Any) -> Any:
    def early(level: DelayLevel, offset: int, due_ms: int) -> int:
        found: int = due(level, offset, due_ms)
        return found - 500

    return early


def _settled_first(release: Any) -> Any:
    def settle(due: DueDelays, messages: Any) -> Plain:
        for message in messages:
            due.levels[message.level].complete(message.offset)
        made: Plain = release(due, messages)
        return made

    return settle


def _nothing(_: Any) -> Any:
    return lambda *_: None


def _known_by_nobody(_: Any) -> Any:
    return lambda *_: False


def _kept_in_memory(_: Any) -> Any:
    return lambda _: True


def _ahead(take: Any) -> Any:
    def early(coming: Coming, now_ms: int, count_max: int) -> list[int]:
        taken: list[int] = take(coming, now_ms + 500, count_max)
        return taken

    return early


def _remembered_only(append: Any) -> Any:
    """Cancels are not stored."""

    def cancel(parts: Any, target: Any, puts: list[Any]) -> Generator[Any, None, list[str]]:
        if len(puts) == 1:
            parts.take_out(target.message.physical)
            return []
        keys: list[str] = yield from append(parts, target, puts)
        return keys

    return cancel


def _only_by_records(_: Any) -> Any:
    """Retention asks what records the files of the timer log name, and not what is still read from them."""

    def drop_before(table: TimerTable, physical: int, *, saved: int) -> int:
        del saved
        return table.log.drop_before(physical, keep=table.log.position(table.log.count))

    return drop_before


def _superseded_ignored(apply: Any) -> Any:
    """A start does not ask the log what was replaced."""

    def skip(parts: Any, _: int, refused: dict[int, tuple[int, int]]) -> Any:
        return apply(parts, parts.store.end, refused)

    return skip


def _next_alone(append: Any) -> Any:
    """What takes a message's place is written record by record."""

    def separately(store: Store, puts: Any, *, atomic: bool = False, done: Any = None, **options: Any) -> Any:
        if not atomic or len(puts) < 2:
            return append(store, puts, atomic=atomic, done=done, **options)
        positions: list[Any] = []
        for put in puts[:-1]:
            positions += append(store, [put], **options)
            store.flush()
        return positions + append(store, puts[-1:], done=done, **options)

    return separately


def _decisions_forgotten(steps: Any) -> Any:
    """A start takes every half for undecided."""

    def forget(replay: TransactionReplay) -> Generator[None, None, None]:
        yield from steps(replay)
        halves = replay._halves
        queue = halves.queue()
        if queue is not None:
            states = halves.states = HalfStates(queue.min_offset)
            states.grow(queue.max_offset)
            halves.seen = halves.checks.cursor = states.position
            halves.ages.begin(states.position)

    return forget


def _rollback_unwritten(add: Any) -> Any:
    """A rollback is answered before it is stored, and never is."""

    def answer(
        writer: OpWriter, offset: int, fate: Fate, done: Callable[[StoreError | None], None] | None = None
    ) -> None:
        if fate is Fate.ROLLED_BACK and done is not None:
            done(None)
        else:
            add(writer, offset, fate, done)

    return answer


_EARLY = _patched(GroupCommit, "_sync_oldest", lambda _: sync_and_settle_at_once)
_SETTLED_EARLY: dict[type[Scenario], str] = {
    Delays: "lost",
    Timers: "lost",
    RetryTopicRetries: "lost",
    Retries: "lost",
    DeadLetters: "lost",
    Halves: "though the sync failed",
}

MUTANTS = (
    Mutant(
        "what was sent back is consumed where it was", Retries, "again", _patched(Finished, "has", _known_by_nobody)
    ),
    Mutant(
        "failures are counted in memory alone",
        OrderlyRetries,
        "consumer_retries.json",
        _patched(RetryCounts, "save", _kept_in_memory),
    ),
    Mutant(
        "redrives are not known after a start", DeadLetters, "nobody asked", _patched(Redrives, "_decided", _nothing)
    ),
    Mutant("deliveries do not name what they replace", Delays, "times", _patched(PlainRelease, "release", _unnamed)),
    Mutant("messages are delivered half a second early", Delays, "early", _patched(DelayLevel, "_due", _hurried)),
    Mutant(
        "a delivery counts before it is durable", Delays, "lost", _patched(DueDelays, "release_plain", _settled_first)
    ),
    Mutant(
        "cancels of a level do not name what they replace",
        Delays,
        "visible",
        _patched(broker.scheduled.delay.cancel, "prepared_offset_of", lambda _: lambda _: 0),
    ),
    Mutant(
        "half a batch at the log's end is kept",
        Batches,
        "of one unit",
        _patched(QueueBuild, "finish", lambda _: keep_half_a_batch),
    ),
    Mutant("timers are delivered half a second early", Timers, "early", _patched(Coming, "take", _ahead)),
    Mutant(
        "retention deletes files of the timer log that are read from",
        Timers,
        "made anew",
        _patched(TimerTable, "drop_before", _only_by_records),
    ),
    Mutant(
        "cancels are not stored",
        Timers,
        "visible",
        _patched(broker.scheduled.timer.cancel, "_append", _remembered_only),
    ),
    Mutant(
        "a start does not ask what timers were replaced",
        Timers,
        "times",
        _patched(broker.scheduled.timer.opening, "_apply_decisions", _superseded_ignored),
    ),
    Mutant("an occurrence and its next are two writes", Loops, "lost", _patched(Store, "append", _next_alone)),
    Mutant(
        "decided halves are undecided again",
        Halves,
        "times",
        _patched(TransactionReplay, "steps", _decisions_forgotten),
    ),
    Mutant(
        "what the log has of numbers is not read", Numbered, "times", _patched(Deduplication, "_take", _nothing_taken)
    ),
    Mutant(
        "a checkpoint of numbers says what is not durable",
        Numbered,
        "lost",
        _patched(broker.deduplication.deduplication, "_below", _all_of_it),
    ),
    Mutant(
        "a checkpoint of numbers is not read",
        Numbered,
        "behind a gap",
        _patched(Deduplication, "_load", _no_checkpoint),
    ),
    Mutant("rollbacks are not stored", Halves, "answered", _patched(OpWriter, "add", _rollback_unwritten)),
    *[
        Mutant(f"{kind.__name__}: flushes settle when their syncs begin", kind, said, _EARLY, beside=True)
        for kind, said in _SETTLED_EARLY.items()
    ],
)
