"""Who did what."""

from __future__ import annotations

from collections.abc import Sequence

from broker.views import View
from proxy.access.views import AuditEntry


class AuditAnswer(View, frozen=True, kw_only=True):
    """The part of the audit trail that is in memory.

    Attributes:
        now_ms: Now, by the node's wall clock.
        entries_total: How many entries are in memory; the files have all.
        entries: The newest first.
    """

    now_ms: int
    entries_total: int
    entries: Sequence[AuditEntry]
