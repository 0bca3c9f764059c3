"""What needs attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from broker.views import View


class Finding(View, frozen=True, kw_only=True):
    """What an operator should look at; docs/operations.md lists the kinds.

    Attributes:
        finding: Its kind.
        severity: `bad` when messages are lost, refused or held now, else `watch`.
        text: A sentence that says what was found.
        advice: What to do.
        group: The group that it is about; null for the node.
        topic: The topic that it is about; null for the node.
        status: Lag status that says the same of the group's queues, such as BLOCKED; null: none does.
        cause: Cause that the lag rules found, such as poison_message; null: none, or the finding itself is the cause.
        evidence: Figures that show the cause; "" without one.
        since_ms: When the condition began, or when this process first saw it.
        queue: Number of the queue: of the worst one where there are several; null without one.
        offset: Offset of the message that it is about; null without one.
        key: Order key of the message that it is about; null without one.
        attempts: Attempts of that message; null where it is about no single one.
        reason: Of the last failure; null where none is known.
        count: Number of cases that it represents.
    """

    finding: str
    severity: Literal["bad", "watch"]
    text: str
    advice: str
    group: str | None = None
    topic: str | None = None
    status: str | None = None
    cause: str | None = None
    evidence: str = ""
    since_ms: int | None = None
    queue: int | None = None
    offset: int | None = None
    key: str | None = None
    attempts: int | None = None
    reason: str | None = None
    count: int = 1

    @property
    def bad(self) -> bool:
        """Whether messages are lost, refused or held now."""
        return self.severity == "bad"

    @property
    def level(self) -> str:
        """The level that it gives its group, or the node: `ERR` or `WARN`."""
        return "ERR" if self.bad else "WARN"


class AttentionAnswer(View, frozen=True, kw_only=True):
    """What needs attention.

    Attributes:
        now_ms: Now, by the node's wall clock.
        level: `OK`, `WARN`, `ERR`, or `UNKNOWN` where nothing is ERR and some queue cannot be judged.
        findings: The bad first; empty for a healthy node.
    """

    now_ms: int
    level: str
    findings: Sequence[Finding]
