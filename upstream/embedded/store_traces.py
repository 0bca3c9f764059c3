"""The spans of messages that are appended to the store (`upstream.figures.tracing`)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.errors import StoreError
from broker.log.put import Done, LogPosition, Put
from upstream.figures.tracing import Tracing, Value


def traced_appends(
    tracing: Tracing, puts: Sequence[Put], positions: Sequence[LogPosition], done: Done | None
) -> Done | None:
    """Have messages traced that are staged in the store: their spans end when `done` is called (`Store.opening`).

    Returns:
        What is to be called instead of `done`.
    """
    traced = [
        (context, put, position)
        for put, position in zip(puts, positions, strict=True)
        if (context := tracing.in_block(put.properties, position.unique_key)) is not None
    ]
    if not traced:
        return done
    since_us = tracing.clock.wall_us()

    def durable(error: StoreError | None) -> None:
        for context, put, position in traced:
            facts: dict[str, Value] = {
                "messaging.destination.name": put.topic.name,
                "messaging.destination.partition.id": str(position.queue_id),
                "messaging.pyddmq.offset": position.offset,
                "messaging.message.body.size": len(put.body),
            }
            tracing.published(context, put.topic.name, since_us, facts, error)
        if done is not None:
            done(error)

    return durable
