"""Deletes: messages whose value is null, as Kafka has them (docs/kafka.md)."""

from __future__ import annotations

from pyddmq.actions import Job

NULL_VALUE = "BODY;null"
"""Property of a message whose value is null; its body is empty."""


def is_tombstone(job: Job) -> bool:
    """Whether a message is a delete, and no action made a body of its own for it."""
    data = job.data
    if data is not None and not (isinstance(data, bytes | bytearray | memoryview) and not len(data)):
        return False
    return not len(job.body) and NULL_VALUE in job.message.properties
