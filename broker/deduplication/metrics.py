"""What deduplication counts; docs/metrics.md lists it."""

from __future__ import annotations

from broker.runtime.metrics import declare

REPEATED = declare(
    "pyddmq_sends_repeated_total",
    "Messages that were sent again and were stored already, by what was answered: first_receipt, older",
    ("answer",),
)
GAPS = declare("pyddmq_sends_gaps_total", "Messages refused because one that their producer numbered lower is missing")
FORGOTTEN = declare(
    "pyddmq_producers_forgotten_total",
    "Deduplicating producers that are no longer known; by reason: silent, producers, receipts",
    ("reason",),
)
KNOWN = declare("pyddmq_producers_known", "Deduplicating producers that are known", kind="gauge")
