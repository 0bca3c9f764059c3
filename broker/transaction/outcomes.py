"""Answers to the client that decides a transaction."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from broker.transaction.names import State


class End(StrEnum):
    """What became of a decision; the values are the reasons in `pyddmq_transactions_end_refused_total`.

    OK: it is durable (of UNKNOWN: noted). ALREADY_SAME: the same was decided before; nothing was stored again.
    ALREADY_OTHER: the other was decided before, for good. DISCARDED: the half is in the discard topic; it can be
    resumed. UNKNOWN_HANDLE: there is no such half, or none any more. WRONG_GROUP: it is of another producer group.
    TOO_LATE: only the answer to a check can decide it now. REFUSED: the message cannot be stored where it belongs; the
    half stays undecided. DISK_FULL: try again. SEARCH_FAILED: the place of the half is not known now; try again.
    FAILED: the store takes nothing until a restart.
    """

    OK = "ok"
    ALREADY_SAME = "already_same"
    ALREADY_OTHER = "already_other"
    DISCARDED = "discarded"
    UNKNOWN_HANDLE = "unknown_handle"
    WRONG_GROUP = "wrong_group"
    TOO_LATE = "too_late"
    REFUSED = "refused"
    DISK_FULL = "disk_full"
    SEARCH_FAILED = "search_failed"
    FAILED = "failed"


class EndOutcome(NamedTuple):
    """An answer.

    Attributes:
        end: What became of the decision.
        text: A sentence for people; "" for OK.
        decided: The final decision where there is one: COMMIT or ROLLBACK.
    """

    end: End
    text: str = ""
    decided: State | None = None

    @property
    def resolved(self) -> bool:
        """Whether what was asked for is so."""
        return self.end in (End.OK, End.ALREADY_SAME)
