"""The sample data: 8,577 events of permit cases (ATTRIBUTION.md), in the order of their time, as messages."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from dataclasses import dataclass
from datetime import datetime
from importlib import resources

CASE_COLUMN = "case:concept:name"
ACTIVITY_COLUMN = "concept:name"
TIME_COLUMN = "time:timestamp"

RUN_FIELD = "demo:run"
SEQUENCE_FIELD = "demo:sequence"
CASE_SEQUENCE_FIELD = "demo:caseSequence"
"""Fields that the demo adds to a row: run id, position in the run and position in the case, both from 0 on."""

RUN_PROPERTY = "demoRun"

_FAIL_ONE_IN = 20
"""The share of events that clients fail on purpose: one in twenty, every fourth of those twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoEvent:
    """One event.

    Attributes:
        sequence: Position in the run, from 0 on.
        case: Case id, the order key.
        case_sequence: Position in its case, from 0 on.
        row: Column to text.
    """

    sequence: int
    case: str
    case_sequence: int
    row: dict[str, str]

    @property
    def failures(self) -> int:
        """How often clients fail this event on purpose: 0, 1 or 2; the same in every run."""
        draw = zlib.crc32(f"{self.case}/{self.case_sequence}".encode()) % (_FAIL_ONE_IN * 4)
        if draw == 0:
            return 2
        return 1 if draw % _FAIL_ONE_IN == 0 else 0

    def body(self, run: str) -> bytes:
        """Message body: the row as a JSON object with the demo's own fields."""
        own = {RUN_FIELD: run, SEQUENCE_FIELD: self.sequence, CASE_SEQUENCE_FIELD: self.case_sequence}
        return json.dumps({**self.row, **own}, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a message says of itself: the run it belongs to and its place there."""

    run: str
    sequence: int
    case: str
    case_sequence: int


def load_events(count_max: int | None = None) -> list[DemoEvent]:
    """Read the sample data.

    Args:
        count_max: Only the first so many, by time; None for all.

    Returns:
        Events in the order of their time; rows of the same instant keep the file's order.
    """
    packed = resources.files("proxy.demo").joinpath("receipt.csv.gz").read_bytes()
    rows = list(csv.DictReader(gzip.decompress(packed).decode().splitlines()))
    rows.sort(key=lambda row: datetime.fromisoformat(row[TIME_COLUMN]))
    events = []
    lengths: dict[str, int] = {}
    for sequence, row in enumerate(rows[:count_max]):
        case = row[CASE_COLUMN]
        position = lengths.get(case, 0)
        lengths[case] = position + 1
        events.append(DemoEvent(sequence=sequence, case=case, case_sequence=position, row=row))
    return events


def read_body(body: bytes) -> Seen | None:
    """Read the demo's own fields from a message body; None for a message that no demo sent."""
    try:
        value = json.loads(body)
        return Seen(
            run=str(value[RUN_FIELD]),
            sequence=int(value[SEQUENCE_FIELD]),
            case=str(value[CASE_COLUMN]),
            case_sequence=int(value[CASE_SEQUENCE_FIELD]),
        )
    except (ValueError, KeyError, TypeError):
        return None
