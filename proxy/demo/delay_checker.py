"""Judges one run of the demo of delays from what its consumer saw: pure bookkeeping, no network, no time."""

from __future__ import annotations

from dataclasses import dataclass, field

from proxy.demo.checker import Findings
from proxy.demo.report import Check

SPOIL_EARLY_MS = 2_000


@dataclass(slots=True)
class Expected:
    """A message, or a loop of them.

    Attributes:
        kind: level, timer, loop or cancel: the check that it belongs to.
        due_ms: Wall-clock moments before which no delivery may come, in their order.
        cancelled: None of those that have not come may come any more.
        delivered_ms: When deliveries came.
    """

    kind: str
    due_ms: list[int]
    cancelled: bool = False
    delivered_ms: list[int] = field(default_factory=list)

    @property
    def open(self) -> bool:
        """Whether deliveries are still to come."""
        return not self.cancelled and len(self.delivered_ms) < len(self.due_ms)


_PROMISES = {
    "level": "messages of a delay level came after its delay, once",
    "timer": "messages with a moment came then or later, each once",
    "loop": "a loop came as often and as far apart as asked for",
    "cancel": "what was cancelled did not come, and each cancel was answered with what it did",
}


class DelayChecker:
    """The state of one run.

    Args:
        spoil: "early": deliveries of timers are seen two seconds early. "cancel": a cancelled message is seen
            as delivered. None: nothing is spoilt. The node gets honest answers all the same.

    Attributes:
        late_ms: How long after their moment deliveries came.
    """

    def __init__(self, spoil: str | None = None) -> None:
        self.late_ms: list[int] = []
        self._spoil = spoil
        self._expected: dict[str, Expected] = {}
        self._findings = {kind: Findings() for kind in _PROMISES}

    def expect(self, name: str, kind: str, due_ms: list[int]) -> None:
        """Note what is to come; `due_ms` as in `Expected`."""
        self._expected[name] = Expected(kind, due_ms)

    @property
    def complete(self) -> bool:
        """Whether everything came that is to come."""
        return not any(each.open for each in self._expected.values())

    @property
    def last_due_ms(self) -> int:
        """The latest moment of all, those of cancelled messages too."""
        return max((due for each in self._expected.values() for due in each.due_ms), default=0)

    def count(self, name: str) -> int:
        """How often a message came."""
        return len(self._expected[name].delivered_ms)

    def deliver(self, name: str, wall_ms: int) -> None:
        """Note a delivery."""
        expected = self._expected.get(name)
        if expected is None:
            self._findings["timer"].add(f"{name} came, which was not sent")
            return
        number = len(expected.delivered_ms)
        expected.delivered_ms.append(wall_ms)
        if expected.cancelled:
            self._findings["cancel"].add(f"{name} came after its cancel was answered")
        elif number >= len(expected.due_ms):
            self._findings[expected.kind].add(f"{name} came {number + 1} times")
        else:
            due_ms = expected.due_ms[number]
            seen_ms = wall_ms - (SPOIL_EARLY_MS if self._spoil == "early" and expected.kind == "timer" else 0)
            self.late_ms.append(wall_ms - due_ms)
            if seen_ms < due_ms:
                self._findings[expected.kind].add(f"{name} came {due_ms - seen_ms} ms early")

    def cancel(self, name: str, outcome: str, expected: str) -> None:
        """Note how a cancel was answered, and which answer is right."""
        if outcome != expected:
            self._findings["cancel"].add(f"the cancel of {name} was answered {outcome!r}, not {expected!r}")
        if name in self._expected and outcome == "cancelled":
            self._expected[name].cancelled = True
            if self._spoil == "cancel":
                self._spoil = None
                self._findings["cancel"].add(f"{name} came after its cancel was answered")

    def checks(self) -> tuple[Check, ...]:
        """Draw the verdicts."""
        for name, expected in self._expected.items():
            if expected.open:
                came, wanted = len(expected.delivered_ms), len(expected.due_ms)
                self._findings[expected.kind].add(f"{name} came {came} of {wanted} times")
        return tuple(
            Check(name=kind, promise=_PROMISES[kind], findings=findings) for kind, findings in self._findings.items()
        )
