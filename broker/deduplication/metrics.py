"""What deduplication counts; docs/metrics.md lists it."""

from __future__ import annotations

from broker.runtime.metrics import declare

REPEATED = declare(
    "pyddmq_sends_repeated_total",
    "Messages sent again that were already stored, by the answer: first_receipt, older",
    ("answer",),
)
GAPS = declare(
    "pyddmq_sends_gaps_total", "Messages refused because one with a lower number of their producer is missing"
)
FORGOTTEN = declare(
    "pyddmq_producers_forgotten_total",
    "Deduplicating producers that were forgotten; by reason: silent, producers, receipts",
    ("reason",),
)
KNOWN = declare("pyddmq_producers_known", "Known deduplicating producers", kind="gauge")
