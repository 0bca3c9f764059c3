"""From a failing run to a short history that people can read.

`shrink` leaves out faults, clients and sends, in ever smaller pieces (delta debugging: Zeller and Hildebrandt's ddmin),
as long as the run still fails in the same way; then it runs what is left once more and writes down what happened.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from structlog.testing import capture_logs

from proxy.node.node import Node
from tests.simulation.journaled import JournaledLedger
from tests.simulation.ledger import Place, PromiseBroken, Publish, Stamp
from tests.simulation.plan import GROUPS, ClientPlan, Plan, Send, Step, make_world, sends_of
from tests.simulation.world import NodeFactory

RUNS_MAX = 150
HISTORY_LINES_MAX = 200

Piece = TypeVar("Piece")


class TellingLedger(JournaledLedger):
    """Writes down what is entered, one line per event."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.history: list[tuple[float, str]] = []

    def note(self, time: float, text: str) -> None:
        self.history.append((time, text))

    def sent(self, publish: Publish) -> None:
        batch = f", in the batch of {publish.batch}" if publish.batch else ""
        self.note(publish.sent.time, f"publish {publish.uid} to {publish.topic}, key {publish.key or '-'}{batch}")
        super().sent(publish)

    def settled(self, uid: int, outcome: str, stamp: Stamp, receipt: tuple[str, int] | None = None) -> None:
        where = f" at {receipt[0]}:{receipt[1]}" if receipt else ""
        self.note(stamp.time, f"publish {uid} is {outcome}{where}")
        super().settled(uid, outcome, stamp, receipt)

    def delivered(self, group: str, place: Place, client: str, stamp: Stamp, **message: Any) -> None:
        self.note(stamp.time, f"{group} {client} gets {message['uid']} from {_at(place)}")
        super().delivered(group, place, client, stamp, **message)

    def answered(  # noqa: PLR0917
        self,
        group: str,
        place: Place,
        client: str,
        stamp: Stamp,
        success: bool,
        of: Stamp | None = None,
        named: bool = False,
    ) -> None:
        self.note(stamp.time, f"{group} {client} says {'success' if success else 'failure'} for {_at(place)}")
        super().answered(group, place, client, stamp, success, of, named)

    def confirmed(self, group: str, place: Place, stamp: Stamp) -> None:
        self.note(stamp.time, f"{group} success for {_at(place)} is answered")
        super().confirmed(group, place, stamp)

    def ended(self, *, power_lost: bool, time: float, seconds: float | None = None) -> None:
        self.note(time, f"the process ends{', and the power with it' if power_lost else ''}")
        super().ended(power_lost=power_lost, time=time, seconds=seconds)


@dataclass(slots=True)
class Shrunk:
    """A small run that fails as the large one did.

    Attributes:
        plan: The run.
        error: How it fails.
        history: What happened, (virtual second, event), in the order of time.
        runs: How many were tried.
    """

    plan: Plan
    error: BaseException
    history: list[tuple[float, str]] = field(default_factory=list)
    runs: int = 0

    def text(self) -> str:
        """Return it for people."""
        began = 1_000
        faults = ", ".join(step.fault for step in self.plan.steps) or "none"
        clients = ", ".join(client.group or "producer" for client in self.plan.clients)
        lines = [f"shrunk in {self.runs} runs to faults: {faults}; clients: {clients or 'none'}"]
        shown = self.history[-HISTORY_LINES_MAX:]
        if len(shown) < len(self.history):
            lines.append(f"  ... {len(self.history) - len(shown)} events before")
        lines += [f"  {time - began:9.4f} s  {event}" for time, event in shown]
        lines.append(f"  {self.error}")
        return "\n".join(lines)


def shrink(plan: Plan, *, make_node: NodeFactory = Node, runs_max: int = RUNS_MAX) -> Shrunk:
    """Make a failing run small.

    Args:
        plan: Fails.
        make_node: Builds the node.
        runs_max: How many runs may be tried; what is reached by then is returned.

    Raises:
        ValueError: The plan does not fail.
    """
    attempt = _Attempts(make_node, runs_max)
    first = attempt.run(plan)
    if first is None:
        raise ValueError("the run does not fail")
    kind = _kind(first.error)

    def fails(smaller: Plan) -> bool:
        found = attempt.run(smaller)
        return found is not None and _kind(found.error) == kind

    def with_steps(kept: Sequence[Step]) -> Plan:
        return replace(plan, steps=tuple(kept))

    def with_clients(kept: Sequence[ClientPlan]) -> Plan:
        return replace(plan, clients=tuple(kept))

    def with_sends(kept: Sequence[Send]) -> Plan:
        return replace(plan, sends=frozenset(kept))

    # Most runs are of a plan with few clients then, which takes a fraction of the time.
    plain = with_clients([client for client in plan.clients if not (client.loops or client.halves or client.checked)])
    named = with_clients([client for client in plain.clients if not client.group or client.group in str(first.error)])
    for fewer in (named, plain):
        if len(fewer.clients) < len(plan.clients) and fails(fewer):
            plan = fewer
            break
    good = replace(plan, good=True)
    if fails(good):
        plan = good
    plan = with_steps(ddmin(plan.steps, lambda kept: fails(with_steps(kept))))
    plan = with_clients(ddmin(plan.clients, lambda kept: fails(with_clients(kept))))
    if attempt.run(plan) is not None:
        smaller = with_sends(ddmin(sorted(attempt.sends), lambda kept: fails(with_sends(kept))))
        plan = smaller if fails(smaller) else plan
    # With fewer messages fewer faults may do, and other moments.
    plan = with_steps(ddmin(plan.steps, lambda kept: fails(with_steps(kept))))
    attempt.left = max(attempt.left, 1)
    last = attempt.run(plan)
    assert last is not None, "a run of a seed must fail again"
    last.runs = attempt.count
    return last


def ddmin(pieces: Sequence[Piece], fails: Callable[[Sequence[Piece]], bool]) -> list[Piece]:
    """Leave out as much as possible: chunks first, then single pieces; what is returned fails, if `pieces` do."""
    kept = list(pieces)
    chunk = len(kept)
    while kept and chunk:
        start, removed = 0, False
        while start < len(kept):
            without = kept[:start] + kept[start + chunk :]
            if fails(without):
                kept, removed = without, True
            else:
                start += chunk
        if chunk == 1 and not removed:
            break
        chunk = max(chunk // 2, 1) if chunk > 1 else 1
    return kept


class _Attempts:
    """Runs plans and counts them; without runs left nothing fails any more."""

    def __init__(self, make_node: NodeFactory, runs_max: int) -> None:
        self._make_node = make_node
        self.left = runs_max
        self.count = 0
        self.sends: frozenset[tuple[int, int]] = frozenset()

    def run(self, plan: Plan) -> Shrunk | None:
        """Return how the plan fails, None when it does not."""
        if self.left <= 0:
            return None
        self.left -= 1
        self.count += 1
        world, run = make_world(plan, make_node=self._make_node, ledger=TellingLedger)
        try:
            with capture_logs():
                run()
        except Exception as error:
            assert isinstance(world.ledger, TellingLedger)
            self.sends = sends_of(world)
            return Shrunk(plan, error, _concerning(error, world.ledger.history))
        return None


def _kind(error: BaseException) -> tuple[object, ...]:
    """What two failures must have in common: the promise, and the beginning of the sentence without its numbers."""
    promise = error.promise if isinstance(error, PromiseBroken) else None
    words = [word for word in str(error).split() if re.fullmatch(r"[a-z-]+[:,]?", word)]
    return type(error), promise, tuple(words[:6])


def _concerning(error: BaseException, history: list[tuple[float, str]]) -> list[tuple[float, str]]:
    """Leave out what other groups did than those that the error names, if it names one; in the order of time."""
    named = [group for group in GROUPS if re.search(rf"\b{group}\b", str(error))]
    others = tuple(f"{group} " for group in GROUPS if named and group not in named)
    return sorted((event for event in history if not event[1].startswith(others)), key=lambda event: event[0])


def _at(place: Place) -> str:
    return f"{place.topic} {place.qid}:{place.offset}"
