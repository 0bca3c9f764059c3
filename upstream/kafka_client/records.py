"""Batches of what a consumer got, as the loop receives them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from upstream.kafka.link import Headers, KafkaPartition, KafkaRecord
from upstream.kafka_client.producer import name_of, names_lost

OVERHEAD_BYTES = 256
"""Of a record beside its key, value and headers."""
_NO_EPOCH = -1


class PartitionRecords(NamedTuple):
    """Records by rising offset in each partition, and then ends.

    Attributes:
        records: Of any partitions.
        epochs: Of each partition in it, which reading of it this belongs to.
        ends: Partitions all of which was reported up to an offset, with the epoch.
        weight: Bytes, about.
    """

    records: list[KafkaRecord]
    epochs: dict[KafkaPartition, int]
    ends: list[tuple[KafkaPartition, int, int]]
    weight: int


def record_of(message: Any) -> KafkaRecord:
    """Return a message of the package's as a record."""
    kind, moment = message.timestamp()
    return KafkaRecord(
        message.topic(),
        message.partition(),
        message.offset(),
        moment if kind else -1,
        message.key(),
        message.value(),
        _headers_of(message),
        _NO_EPOCH if (epoch := message.leader_epoch()) is None else epoch,
    )


def _headers_of(message: Any) -> Headers:
    """Return a message's headers, whatever their names are.

    The package decodes names as UTF-8. Where it cannot, it raises and leaves a list with holes in the place of names.
    """
    try:
        return message.headers() or ()
    except (SystemError, UnicodeDecodeError) as error:
        return names_lost(message.headers() or (), name_of(error))


def weight_of(record: KafkaRecord) -> int:
    """Bytes of a record, about."""
    size = OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") for name, value in record.headers) if record.headers else size


def batches_of(
    messages: Sequence[Any], reading: Mapping[KafkaPartition, int], end_code: int, refused: Any
) -> list[PartitionRecords]:
    """Sort what was consumed at once into batches.

    Args:
        messages: In the order in which they came.
        reading: Epochs of the partitions that are read; messages of others are dropped.
        end_code: The code of the error that says that a partition is at its end.
        refused: Told every other error, with its topic.
    """
    batches: list[PartitionRecords] = []
    places: dict[tuple[str, int], KafkaPartition] = {each: each for each in reading}
    records: list[KafkaRecord] = []
    epochs: dict[KafkaPartition, int] = {}
    ends: list[tuple[KafkaPartition, int, int]] = []
    weight = 0
    for message in messages:
        error = message.error()
        if error is not None and error.code() != end_code:
            refused(error, message.topic() or "")
            continue
        place = places.get((message.topic(), message.partition()))
        if place is None:
            continue
        if error is not None:
            ends.append((place, message.offset(), reading[place]))
            continue
        if ends:
            batches.append(PartitionRecords(records, epochs, ends, weight))
            records, epochs, ends, weight = [], {}, [], 0
        record = record_of(message)
        records.append(record)
        epochs[place] = reading[place]
        weight += weight_of(record)
    if records or ends:
        batches.append(PartitionRecords(records, epochs, ends, weight))
    return batches
