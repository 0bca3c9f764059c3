"""What a check of a store reports."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Severity(enum.StrEnum):
    """How bad a finding is.

    Attributes:
        NOTE: A state worth knowing; nothing is wrong.
        WARNING: Something derived or kept twice is wrong; nothing is lost, and opening or `--repair` mends it.
        DAMAGE: Something is lost, or a node does not start on it.
    """

    NOTE = "note"
    WARNING = "warning"
    DAMAGE = "damage"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFinding:
    """One thing found.

    Attributes:
        kind: Stable name.
        severity: How bad it is.
        file: The file, relative to the data directory.
        position: Byte in the file at which it begins; None for the whole file.
        text: What was found.
        costs: What it means for messages and for a node.
        count: How many units, records or files it is for.
        repair: What `--repair` does about it; empty when nothing needs to be done or can be.
    """

    kind: str
    severity: Severity
    file: str
    position: int | None = None
    text: str
    costs: str
    count: int = 1
    repair: str = ""
