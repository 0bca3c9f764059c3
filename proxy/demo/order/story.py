"""What happens in the demo of order, moment by moment, and the judgement on it: no network, no time of its own."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from broker.runtime.seams import Clock
from proxy.demo.checker import Findings
from proxy.demo.report import Check, Judged

STEPS = ("call", "accept", "pay")
RIDERS = ("A", "B")
HANGING = ("A", "accept")
"""Whoever is handed this one first hangs."""


class Moment(NamedTuple):
    """One thing that happened.

    Attributes:
        seconds: Since the way began.
        rider: `A` or `B`.
        step: One of `STEPS`.
        what: `out` (handed to a worker), `hangs`, `done`.
        by: Which worker.
    """

    seconds: float
    rider: str
    step: str
    what: str
    by: str


class Story:
    """What happened on one way; workers tell it from their threads.

    Attributes:
        finished: Set once every step of every rider is done.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = self._last = clock.monotonic()
        self._lock = threading.Lock()
        self._moments: list[Moment] = []
        self.finished = threading.Event()

    def begin(self) -> None:
        """Count seconds from now."""
        self._began = self._last = self._clock.monotonic()

    def take(self, rider: str, step: str, by: str) -> bool:
        """Note that a worker was handed a step; returns whether it is to hang."""
        with self._lock:
            first = not any((each.rider, each.step) == (rider, step) for each in self._moments)
            self._note(rider, step, "out", by)
            hangs = first and (rider, step) == HANGING
            if hangs:
                self._note(rider, step, "hangs", by)
            return hangs

    def done(self, rider: str, step: str, by: str) -> None:
        """Note that a worker is done with a step, before it says so."""
        with self._lock:
            self._note(rider, step, "done", by)
            if len({(each.rider, each.step) for each in self._moments if each.what == "done"}) == len(all_steps()):
                self.finished.set()

    def quiet_seconds(self) -> float:
        """How long nothing has happened."""
        with self._lock:
            return self._clock.monotonic() - self._last

    def moments(self) -> list[Moment]:
        """Return what happened, in order."""
        with self._lock:
            return list(self._moments)

    def _note(self, rider: str, step: str, what: str, by: str) -> None:
        self._last = self._clock.monotonic()
        self._moments.append(Moment(self._last - self._began, rider, step, what, by))


def all_steps() -> list[tuple[str, str]]:
    """Every step of every rider, in the order in which they are sent."""
    return [(rider, step) for step in STEPS for rider in RIDERS]


def judge(way: str, moments: Sequence[Moment]) -> list[Check]:
    """Draw the verdicts on one way.

    Args:
        way: `key` or `queue`, for the checks' names.
        moments: What was seen, in order.
    """
    named = {
        "delivery": ("every step was delivered and done", _missing(moments)),
        "order": ("each rider's steps came in order, one at a time", _out_of_order(moments)),
        "retry": ("A's accept came again, before A's pay", _unretried(moments)),
        "others": ("B was done while A hung", _waited(moments)),
    }
    return [Check(name=f"{way}-{name}", promise=text, findings=found) for name, (text, found) in named.items()]


def _missing(moments: Sequence[Moment]) -> Findings:
    findings = Findings()
    done = {(each.rider, each.step) for each in moments if each.what == "done"}
    for rider, step in all_steps():
        if (rider, step) not in done:
            findings.add(f"{rider}: {step} was never done")
    return findings


def _out_of_order(moments: Sequence[Moment]) -> Findings:
    """A step may be out only when all before it are done; the hanging one may be handed out again, and none else."""
    findings = Findings()
    done: set[tuple[str, str]] = set()
    out: set[tuple[str, str]] = set()
    for each in moments:
        place = (each.rider, each.step)
        if each.what == "done":
            done.add(place)
            out.discard(place)
        elif each.what == "hangs":
            out.discard(place)
        else:
            for before in STEPS[: STEPS.index(each.step)]:
                if (each.rider, before) not in done:
                    findings.add(f"{each.rider}: {each.step} came before {before} was done")
            if place in done or place in out:
                findings.add(f"{each.rider}: {each.step} came twice")
            out.add(place)
    return findings


def _unretried(moments: Sequence[Moment]) -> Findings:
    findings = Findings()
    rider, step = HANGING
    whats = [(each.step, each.what) for each in moments if each.rider == rider]
    if (step, "hangs") not in whats:
        findings.add(f"{rider}: {step} never hung")
        return findings
    after = whats[whats.index((step, "hangs")) + 1 :]
    if after[:2] != [(step, "out"), (step, "done")]:
        said = ", ".join(f"{name} {what}" for name, what in after[:2]) or "nothing"
        findings.add(f"{rider}: after {step} hung came {said}")
    return findings


def _waited(moments: Sequence[Moment]) -> Findings:
    """Whether the other rider's last step was done before the hanging one was."""
    findings = Findings()
    done = [(each.rider, each.step) for each in moments if each.what == "done"]
    until = done.index(HANGING) if HANGING in done else len(done)
    for rider in RIDERS:
        if rider != HANGING[0] and (rider, STEPS[-1]) not in done[:until]:
            findings.add(f"{rider}: {STEPS[-1]} was not done before {HANGING[0]}'s {HANGING[1]}")
    return findings


def spoil(kind: str | None, moments: Sequence[Moment]) -> list[Moment]:
    """Change what a checker is shown: `order` exchanges A's accept and pay once A hung, `loss` leaves B's pay out."""
    if kind == "loss":
        return [each for each in moments if (each.rider, each.step, each.what) != ("B", "pay", "done")]
    if kind != "order":
        return list(moments)
    exchanged = {"accept": "pay", "pay": "accept"}
    hung = False
    found = []
    for each in moments:
        changed = (
            each._replace(step=exchanged[each.step]) if hung and each.rider == "A" and each.step != "call" else each
        )
        found.append(changed)
        hung = hung or each.what == "hangs"
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderReport(Judged):
    """The outcome of a run.

    Attributes:
        key: What happened in order by key, at the node.
        queue: What happened in order by queue lock, in this process.
        foreign: Messages of other runs and producers, acked on the way.
    """

    key: Sequence[Moment]
    queue: Sequence[Moment]
    foreign: int

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            **self.verdict(),
            "key": [_moment_json(each) for each in self.key],
            "queue": [_moment_json(each) for each in self.queue],
            "foreign": self.foreign,
        }


def _moment_json(moment: Moment) -> dict[str, Any]:
    return {**moment._asdict(), "seconds": round(moment.seconds, 3)}
