"""The rules over columns come to what they come to over plain numbers: the table of cases, and random windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from random import Random
from typing import Any

import numpy as np
import pytest

from lag.journal.column_rows import Piece
from lag.journal.columns import QUEUES
from lag.journal.files import Tier
from lag.report.engine.column_rules import Judge, text_of
from lag.report.engine.column_samples import TEXTS, SampleColumns, Samples, ordered
from lag.report.engine.judged import JudgedSamples, listed
from lag.report.options import ReportWindow
from lag.rules import causes, quantities, statuses
from lag.rules.facts import WINDOW_FACTS, row_of
from lag.rules.limits import LagLimits
from lag.rules.queue_rules import figures_of
from lag.rules.topic_rules import beside
from lag.samples import QueueSample
from tests.unit.lag.rules.cases import BEGIN, CASES
from tests.unit.lag.wild_queues import wild_queue

Queues = Mapping[tuple[str, int], Sequence[QueueSample]]


def samples_of(queues: Queues) -> Samples:
    """Return samples as columns, read in the order of their moments."""
    gatherer = SampleColumns()
    rows = sorted(
        ((each.time_ms, key, each) for key, samples in queues.items() for each in samples), key=lambda r: r[:2]
    )
    for sequence, (time_ms, here) in enumerate(groupby(rows, key=lambda row: row[0])):
        found = list(here)
        columns = [list(column) for column in zip(*(QUEUES.values(each) for _, _, each in found), strict=True)]
        piece = Piece([("g", *key) for _, key, _ in found], [time_ms] * len(found), columns)
        gatherer.add("c", "n", (1, sequence, Tier.RAW), piece)
    return ordered(*gatherer.samples())[1]


def judged(queues: Queues, limits: LagLimits, resets: Mapping[tuple[str, int], int]) -> tuple[JudgedSamples, Judge]:
    """Judge all samples of queues, as columns, with the causes of all."""
    window = ReportWindow(from_ms=BEGIN - 100_000_000, to_ms=BEGIN + 100_000_000)
    found = JudgedSamples.of(
        samples_of(queues), window, limits, [[resets[key]] if key in resets else [] for key in queues]
    )
    assert found is not None
    return found, found.causes(np.arange(found.count))


def values(judge: Judge, name: str, count: int) -> list[Any]:
    """Return a column as the rules over plain numbers have it."""
    return listed(judge.facts[name], count, text_of if name in ("status", "cause", "time_lag_method") else None)


def plain(queues: Queues, limits: LagLimits, resets: Mapping[tuple[str, int], int]) -> list[dict[str, Any]]:
    """Judge each sample of each queue alone, in the order of queues and moments, without causes."""
    found = []
    for key, samples in queues.items():
        for count in range(1, len(samples) + 1):
            reset_ms = resets.get(key)
            if reset_ms is not None and reset_ms > samples[count - 1].time_ms:
                reset_ms = None
            newest = samples[count - 1]
            rows = [row_of(each) for each in samples[:count]]
            facts: dict[str, Any] = figures_of(rows, newest, newest.time_ms, limits, reset_ms)
            found.append({**facts, "status": statuses.COMPILED(facts)})
    return found


def hold_equal(queues: Queues, limits: LagLimits, resets: Mapping[tuple[str, int], int]) -> set[Any]:
    """Hold that both ways come to the same; return the statuses that were seen."""
    found, judge = judged(queues, limits, resets)
    wanted = plain(queues, limits, resets)
    assert found.count == len(wanted)
    names = [*WINDOW_FACTS, *quantities.QUANTITIES, "status"]
    lists = {name: values(judge, name, found.count) for name in names}
    for row, facts in enumerate(wanted):
        for name in names:
            assert lists[name][row] == facts[name], (row, name, facts["time_ms"] - BEGIN)
    return {facts["status"] for facts in wanted}


@pytest.mark.parametrize("seed", range(3))
def test_random_windows(seed: int) -> None:
    """Every sample of every queue is judged as the newest one, with what came before it."""
    random = Random(4711 + seed)
    queues = {(f"t{number:03}", 0): wild_queue(random) for number in range(60)}
    resets = {key: BEGIN + random.randint(0, 400_000) for key in queues if random.random() < 0.5}
    limits = LagLimits(samples_min=2, target_ms=30_000) if seed % 2 else LagLimits()
    assert len(hold_equal(queues, limits, resets)) > 10


def test_table_of_cases() -> None:
    """Under the limits of each case; those that are judged later than their newest sample are left to others."""
    cases = [case for case in CASES if case.now_s is None]
    assert len(cases) > 30
    for case in cases:
        resets = {} if case.reset_ms is None else {("t", 0): case.reset_ms}
        hold_equal({("t", 0): case.samples}, case.limits, resets)
        found, judge = judged({("t", 0): case.samples}, case.limits, resets)
        last = found.count - 1
        assert values(judge, "status", found.count)[last] == case.status, case.name
        assert values(judge, "cause", found.count)[last] == case.cause, case.name


def test_queues_of_a_topic_stand_beside_each_other() -> None:
    """Skew and hot queues are found by what the others say at the same moment, with the cause that follows."""
    random, hot = Random(4712), 0
    for number in range(20):
        sizes = random.choices([0, 30, 32, 35, 2000], k=random.randint(2, 6))
        queues = {
            (f"t{number}", queue): [
                QueueSample(time_ms=BEGIN + step * 10_000 + queue, start=0, end=size * (step + 1),
                            committed=random.choice([0, 0, None]) if queue == 0 else 0, committed_ms=BEGIN, holders=1)
                for step in range(12)
            ]
            for queue, size in enumerate(sizes)
        }  # fmt: skip
        # The second queue was read twice within the last moment.
        last = queues[f"t{number}", 1][-1]
        queues[f"t{number}", 1].append(replace(last, time_ms=last.time_ms + 1, end=(last.end or 0) + 5))
        found, judge = judged(queues, LagLimits(), {})
        ends = np.flatnonzero(found.last).tolist()
        facts = plain(queues, LagLimits(), {})
        others = beside({row: facts[row] for row in ends})
        names = (*others[ends[0]], *quantities.TOPIC_QUANTITIES, "status", "cause")
        lists = {name: values(judge, name, found.count) for name in names}
        for row in ends:
            wanted = facts[row] | others[row]
            quantities.add_topic_quantities(wanted)
            wanted["cause"] = causes.COMPILED(wanted)
            for name in names:
                assert lists[name][row] == wanted[name], (number, row, name)
            hot += wanted["hot"]
    assert hot > 3


def test_texts_stay_with_their_samples() -> None:
    """A text that only some samples have is that of just these."""
    sample = QueueSample(time_ms=BEGIN, start=0, end=9, committed=3)
    queues = {("t", 0): [sample, replace(sample, time_ms=BEGIN + 10_000, held_reason="it broke", out_client="a")],
              ("t", 1): [replace(sample, held_reason="late")]}  # fmt: skip
    found, _ = judged(queues, LagLimits(), {})
    rows = list(found.reported(np.arange(found.count)))
    assert [(row["held_reason"], row["out_client"]) for row in rows] == [
        (None, None),
        ("it broke", "a"),
        ("late", None),
    ]
    assert {"held_reason", "out_client", "sink_server"} <= {*TEXTS}
