"""Snapshots as payloads: order, epochs and what is missing come back; nonsense is refused."""

from __future__ import annotations

import pytest

from lag.blocks import BlockGap, GapKind
from lag.journal.columns import queue_sample
from lag.journal.snapshots import SnapshotDecoder, SnapshotEncoder, decode_events, encode_events
from lag.samples import EventKind, LagEvent, QueueSample
from tests.unit.lag.samples import NOW_MS

KEY = ("g", "t", 0)


def test_moment_sequence_and_epoch_come_back() -> None:
    """The epoch where it is another than the file's, and on until the next."""
    encoder, decoder = SnapshotEncoder(), SnapshotDecoder()
    found = []
    for number, epoch in enumerate([None, 5, 5, (1 << 64) - 1]):
        encoder.begin(NOW_MS - number, 10 - number, epoch)
        encoder.add(KEY, NOW_MS, QueueSample(time_ms=NOW_MS, end=number))
        snapshot = decoder.open(encoder.end())
        rows = [queue_sample(time_ms, row) for _, time_ms, row in decoder.queues(snapshot)]
        assert rows == [QueueSample(time_ms=NOW_MS, end=number)]
        found.append((snapshot.time_ms, snapshot.sequence, snapshot.epoch))
    assert found == [
        (NOW_MS, 10, None),
        (NOW_MS - 1, 9, 5),
        (NOW_MS - 2, 8, 5),
        (NOW_MS - 3, 7, (1 << 64) - 1),
    ]


def test_what_is_missing_comes_back() -> None:
    """With and without its moments."""
    gaps = [
        BlockGap(GapKind.TORN, "/f", 17, "it ends", NOW_MS, None),
        BlockGap(GapKind.SILENT, "", 0, "nothing", None, NOW_MS + 5),
    ]
    encoder, decoder = SnapshotEncoder(), SnapshotDecoder()
    encoder.begin(NOW_MS, 0)
    assert decoder.missing(decoder.open(encoder.end(missing=gaps))) == gaps


@pytest.mark.parametrize("kind", EventKind)
def test_each_kind_of_event_comes_back(kind: EventKind) -> None:
    """By a code of its own."""
    event = LagEvent(time_ms=NOW_MS - 7, kind=kind, group="g", topic="t", queue=3, detail="who")
    assert decode_events(encode_events([event], NOW_MS), NOW_MS) == [event]


@pytest.mark.parametrize("payload", [b"", b"\x02\0\0", b"\x01\0\0\x01\x09", b"\x01\0"])
def test_payload_that_is_no_snapshot_is_refused(payload: bytes) -> None:
    """Another kind, or a section that runs over the end."""
    with pytest.raises(ValueError, match=r"kind|end"):
        SnapshotDecoder().open(payload)


def test_event_of_unknown_kind_is_refused() -> None:
    """A newer version has another number in the head of the file."""
    with pytest.raises(ValueError, match="unknown kind 99"):
        decode_events(b"\x63\0\0\0\0\0", NOW_MS)
