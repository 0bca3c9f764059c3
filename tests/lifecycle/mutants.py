"""Builds broken on purpose, each in one part of what a table tells; a kill point must show it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

import broker.delay.delays
from broker.delay.delays import Delays as DelayDelivery
from broker.delay.level_queue import DelayLevel
from broker.queue_build import QueueBuild
from broker.release import Released
from broker.retry.finished import Finished
from broker.retry.redrive import Redrives
from tests.lifecycle.batches import Batches
from tests.lifecycle.dead_letters import DeadLetters
from tests.lifecycle.delays import Delays
from tests.lifecycle.retries import Retries
from tests.lifecycle.scenario import Scenario

Apply = Callable[[pytest.MonkeyPatch], None]


class Mutant(NamedTuple):
    """A broken build: what is wrong with it, the run that shows it, a word of what is said, and what breaks it."""

    name: str
    kind: type[Scenario]
    said: str
    apply: Apply


def _patched(owner: Any, name: str, make: Callable[[Any], Any]) -> Apply:
    def apply(monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(owner, name, make(getattr(owner, name)))

    return apply


def _unnamed(release: Any) -> Any:
    def without_origin(*args: Any) -> Released:
        released: Released = release(*args)
        return released._replace(put=released.put._replace(prepared_offset=0))

    return without_origin


def _hurried(due: Any) -> Any:
    def early(level: DelayLevel, offset: int, due_ms: int) -> int:
        found: int = due(level, offset, due_ms)
        return found - 500

    return early


def _settled_first(append: Any) -> Any:
    def settle(delays: DelayDelivery, level: DelayLevel, run: Any) -> bool:
        for message, _ in run:
            level.settle(message.offset)
        taken: bool = append(delays, level, run)
        return taken

    return settle


def _batch_kept(_: Any) -> Any:
    def keep(build: QueueBuild, end: int) -> tuple[int, int]:
        build._settle()
        return 0, end

    return keep


def _nothing(_: Any) -> Any:
    return lambda *_: None


def _known_by_nobody(_: Any) -> Any:
    return lambda *_: False


MUTANTS = (
    Mutant(
        "what was sent back is consumed where it was", Retries, "times", _patched(Finished, "has", _known_by_nobody)
    ),
    Mutant(
        "redrives are not known after a start", DeadLetters, "nobody asked", _patched(Redrives, "_decided", _nothing)
    ),
    Mutant(
        "deliveries do not name what they replace", Delays, "times", _patched(broker.delay.delays, "release", _unnamed)
    ),
    Mutant("messages are delivered half a second early", Delays, "early", _patched(DelayLevel, "_due", _hurried)),
    Mutant(
        "a delivery counts before it is durable", Delays, "lost", _patched(DelayDelivery, "_append", _settled_first)
    ),
    Mutant(
        "half a batch at the log's end is kept", Batches, "of one unit", _patched(QueueBuild, "finish", _batch_kept)
    ),
)
