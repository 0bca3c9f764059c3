"""What is to become of each message, what became of it, and the verdict: pure bookkeeping, no network, no time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from proxy.demo.checker import Findings
from proxy.demo.report import Check, Judged
from pyddmq import LocalState

MESSAGES = 10
Spoil = Literal["visible", "loss"]

_ANSWERS = {0: LocalState.UNKNOWN, 1: LocalState.COMMIT, 2: LocalState.ROLLBACK}


def answer_of(number: int) -> LocalState:
    """What a check of a message is answered, by its number modulo 3: unknown, commit, rollback."""
    return _ANSWERS[number % 3]


@dataclass(slots=True)
class Story:
    """What happened in one run; the thread of checks and that of the demo both tell it.

    Attributes:
        ids: Transaction id by number.
        checks: Highest number of a check that was seen, by number.
        committed: Numbers whose commit has been told, before the node could hear of it.
        rolled_back: Numbers whose rollback has been told, likewise.
        delivered: Deliveries by number.
        early: Numbers that were delivered before their commit was told.
        given_up: Checks that the node counts of each discarded number.
        refused: What the node said of a decision against an earlier one, by number; "" when it took it.
    """

    ids: dict[int, str] = field(default_factory=dict)
    checks: Counter[int] = field(default_factory=Counter)
    committed: set[int] = field(default_factory=set)
    rolled_back: set[int] = field(default_factory=set)
    delivered: Counter[int] = field(default_factory=Counter)
    early: list[int] = field(default_factory=list)
    given_up: dict[int, int] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(self, number: int, times: int) -> LocalState:
        """Note a check, and return what it is answered."""
        with self._lock:
            self.checks[number] = max(self.checks[number], times)
            answer = answer_of(number)
            if answer is LocalState.COMMIT:
                self.committed.add(number)
            elif answer is LocalState.ROLLBACK:
                self.rolled_back.add(number)
            return answer

    def decide(self, number: int, action: str) -> None:
        """Note that an operator is about to decide."""
        with self._lock:
            (self.committed if action == "commit" else self.rolled_back).add(number)

    def deliver(self, number: int) -> None:
        """Note a delivery to a consumer."""
        with self._lock:
            if number not in self.committed:
                self.early.append(number)
            self.delivered[number] += 1

    @property
    def answered(self) -> bool:
        """Whether every message that has an answer has been asked about."""
        return all(self.checks[number] for number in range(MESSAGES) if answer_of(number) is not LocalState.UNKNOWN)

    @property
    def arrived(self) -> bool:
        """Whether every committed message was delivered."""
        return all(self.delivered[number] for number in self.committed)


def unknown_numbers() -> list[int]:
    """Numbers that no check decides."""
    return [number for number in range(MESSAGES) if answer_of(number) is LocalState.UNKNOWN]


def spoil(story: Story, kind: Spoil | None) -> None:
    """Spoil what is judged: `visible` has a rolled-back message delivered, `loss` loses a committed one."""
    if kind == "visible":
        number = min(story.rolled_back)
        story.early.append(number)
        story.delivered[number] += 1
    elif kind == "loss":
        del story.delivered[min(story.committed)]


def judge(story: Story, *, checks_max: int) -> list[Check]:
    """Draw the verdicts."""
    unseen, once, never, asked, final = Findings(), Findings(), Findings(), Findings(), Findings()
    for number in story.early:
        unseen.add(f"message {number} was delivered before its commit")
    for number in sorted(story.committed):
        if story.delivered[number] != 1:
            once.add(f"message {number} was committed and delivered {story.delivered[number]} times")
    for number in sorted(story.rolled_back):
        if story.delivered[number]:
            never.add(f"message {number} was rolled back and delivered {story.delivered[number]} times")
    for number in range(MESSAGES):
        wanted = checks_max if number in unknown_numbers() else 1
        if story.checks[number] < wanted:
            asked.add(f"message {number} was asked about {story.checks[number]} times, not {wanted}")
    for number in unknown_numbers():
        if number not in story.given_up:
            final.add(f"message {number} was not among the discarded")
        elif story.given_up[number] != checks_max:
            final.add(f"message {number} was discarded after {story.given_up[number]} checks, not {checks_max}")
        elif not story.refused.get(number):
            final.add(f"message {number} could be decided a second time, the other way")
    return [
        Check(name="unseen", promise="no message was delivered before its commit", findings=unseen),
        Check(name="committed", promise="what was committed was delivered once", findings=once),
        Check(name="rolled-back", promise="what was rolled back was never delivered", findings=never),
        Check(
            name="checked", promise=f"every message was asked about, those unknown {checks_max} times", findings=asked
        ),
        Check(
            name="by-hand",
            promise="the unknown ones were discarded, and decided by hand once and for all",
            findings=final,
        ),
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionReport(Judged):
    """What one run showed; `seconds` from the first half to the last delivery."""

    story: Story
    foreign: int
    seconds: float

    def as_json(self) -> Mapping[str, Any]:
        """Return the report as JSON values."""
        story = self.story
        return {
            **self.verdict(),
            "messages": [
                {
                    "number": number,
                    "id": story.ids.get(number, ""),
                    "checks": story.checks[number],
                    "discarded": number in story.given_up,
                    "end": "committed" if number in story.committed else "rolledBack",
                    "delivered": story.delivered[number],
                }
                for number in range(MESSAGES)
            ],
            "foreign": self.foreign,
            "seconds": round(self.seconds, 3),
        }
