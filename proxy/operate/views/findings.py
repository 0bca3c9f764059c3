"""What needs attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from broker.views import View


class Finding(View, frozen=True, kw_only=True):
    """What a person on call should look at; docs/operations.md lists the kinds.

    Attributes:
        finding: Its kind.
        severity: `bad` when messages are lost, refused or held now, else `watch`.
        text: A sentence that says what there is.
        advice: What to do.
        group: The group that it is about; null for the node.
        topic: The topic that it is about; null for the node.
        key: Order key of the message that it is about; null without one.
        attempts: Attempts of that message; null where it is about no single one.
        reason: Of the last failure; null where none is known.
        count: For how many such things it stands.
    """

    finding: str
    severity: Literal["bad", "watch"]
    text: str
    advice: str
    group: str | None = None
    topic: str | None = None
    key: str | None = None
    attempts: int | None = None
    reason: str | None = None
    count: int = 1

    @property
    def bad(self) -> bool:
        """Whether messages are lost, refused or held now."""
        return self.severity == "bad"


class AttentionAnswer(View, frozen=True, kw_only=True):
    """What needs attention.

    Attributes:
        now_ms: Now, by the node's wall clock.
        findings: The bad first; empty for a healthy node.
    """

    now_ms: int
    findings: Sequence[Finding]
