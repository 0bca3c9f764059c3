"""From a failing run to a short history that people can read.

`shrink` leaves out faults, clients, messages and bad answers, in ever smaller pieces (delta debugging: Zeller and
Hildebrandt's ddmin), as long as the run still fails in the same way; then it runs what is left once more and writes
down what happened. `keep` makes a file of it, which `test_kept.py` runs from then on.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from structlog.testing import capture_logs

from proxy.node.node import Node
from tests.simulation.deeds import Deed, Deeds, Send
from tests.simulation.journaled import JournaledLedger
from tests.simulation.ledger import Place, PromiseBroken, Publish, Stamp
from tests.simulation.plan import GROUPS, ClientPlan, Plan, Step, TimerPlan, make_world
from tests.simulation.world import NodeFactory

RUNS_MAX = 400
KEPT = Path(__file__).parent / "kept"
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

    def confirmed(self, group: str, place: Place, stamp: Stamp, of: Stamp | None = None) -> None:
        self.note(stamp.time, f"{group} success for {_at(place)} is answered")
        super().confirmed(group, place, stamp, of)

    def ended(self, *, power_lost: bool, time: float, seconds: float | None = None, ready: bool = True) -> None:
        self.note(time, f"the process ends{', and the power with it' if power_lost else ''}")
        super().ended(power_lost=power_lost, time=time, seconds=seconds, ready=ready)


@dataclass(slots=True)
class Shrunk:
    """A small run that fails as the large one did.

    Attributes:
        plan: The run.
        error: How it fails.
        history: What happened, (virtual second, event), in the order of time.
        runs: How many were tried.
        drawn: How many faults, messages and bad answers the first of them had.
    """

    plan: Plan
    error: BaseException
    history: list[tuple[float, str]] = field(default_factory=list)
    runs: int = 0
    drawn: int = 0

    @property
    def events(self) -> int:
        """Faults, messages and bad answers that are left."""
        return len(self.plan.steps) + len(self.plan.sends or ()) + len(self.plan.deeds or ())

    def text(self) -> str:
        """Return it for people."""
        began = 1_000
        faults = ", ".join(step.fault for step in self.plan.steps) or "none"
        clients = ", ".join(client.group or "producer" for client in self.plan.clients)
        lines = [
            f"shrunk in {self.runs} runs from {self.drawn} events to {self.events}; faults: {faults}; "
            f"clients: {clients or 'none'}",
            *(f"  {each}" for each in (*sorted(self.plan.sends or ()), *sorted(self.plan.deeds or ()))),
        ]
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
    kind = kind_of(first.error)

    def fails(smaller: Plan) -> bool:
        found = attempt.run(smaller)
        return found is not None and kind_of(found.error) == kind

    def with_steps(kept: Sequence[Step]) -> Plan:
        return replace(plan, steps=tuple(kept))

    def with_clients(kept: Sequence[ClientPlan]) -> Plan:
        return replace(plan, clients=tuple(kept))

    def with_sends(kept: Sequence[Send]) -> Plan:
        return replace(plan, sends=frozenset(kept))

    def with_deeds(kept: Sequence[Deed]) -> Plan:
        return replace(plan, deeds=frozenset(kept))

    drawn = len(plan.steps) + len(attempt.deeds.sent) + len(attempt.deeds.answered)
    written = frozenset(attempt.deeds.answered)

    # Most runs are of a plan with few clients then, which takes a fraction of the time.
    plain = with_clients([client for client in plan.clients if not (client.loops or client.halves or client.checked)])
    named = with_clients([client for client in plain.clients if not client.group or client.group in str(first.error)])
    for fewer in (named, plain):
        if len(fewer.clients) < len(plan.clients) and fails(fewer):
            plan = fewer
            break
    # With no bad habit; else with those that the clients of the first run had, one by one; else as drawn.
    for listed in (replace(plan, good=True), with_deeds(()), replace(plan, deeds=written)):
        if fails(listed):
            plan = listed
            break
    plan = with_steps(ddmin(plan.steps, lambda kept: fails(with_steps(kept))))
    plan = with_clients(ddmin(plan.clients, lambda kept: fails(with_clients(kept))))
    if plan.deeds:
        plan = with_deeds(ddmin(sorted(plan.deeds), lambda kept: fails(with_deeds(kept))))
    if attempt.run(plan) is not None:
        sent = sorted(attempt.deeds.sent)
        if fails(with_sends(sent)):
            plan = with_sends(ddmin(sent, lambda kept: fails(with_sends(kept))))
    # With fewer messages fewer faults may do, and fewer clients.
    plan = with_steps(ddmin(plan.steps, lambda kept: fails(with_steps(kept))))
    plan = with_clients(ddmin(plan.clients, lambda kept: fails(with_clients(kept))))
    attempt.left = max(attempt.left, 1)
    last = attempt.run(plan)
    assert last is not None, "a run of a seed must fail again"
    last.runs, last.drawn = attempt.count, drawn
    return last


def keep(path: Path, shrunk: Shrunk, *, broken: str = "") -> None:
    """Write a file that repeats a small run; `broken`: the name of the broken build of which it was made."""
    plan = asdict(shrunk.plan) | {name: sorted(getattr(shrunk.plan, name) or ()) for name in ("sends", "deeds")}
    for name in ("sends", "deeds"):
        plan[name] = None if getattr(shrunk.plan, name) is None else plan[name]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"broken": broken, "error": str(shrunk.error), "plan": plan}, indent=1) + "\n")


def kept(path: Path) -> tuple[Plan, str]:
    """Return the run of a file, and the name of the broken build of which it was made."""
    content = json.loads(path.read_text())
    plan = content["plan"]
    return Plan(
        **{
            **plan,
            "clients": tuple(ClientPlan(*each) for each in plan["clients"]),
            "steps": tuple(Step(*each) for each in plan["steps"]),
            "sends": None if plan["sends"] is None else frozenset(Send(*each) for each in plan["sends"]),
            "deeds": None if plan["deeds"] is None else frozenset(Deed(*each) for each in plan["deeds"]),
            "timers": None if plan["timers"] is None else TimerPlan(*plan["timers"]),
        }
    ), content["broken"]


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
        self.deeds = Deeds()
        """What clients did in the last run that failed."""

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
            self.deeds = world.deeds
            return Shrunk(plan, error, _concerning(error, world.ledger.history))
        return None


def kind_of(error: BaseException) -> tuple[object, ...]:
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
