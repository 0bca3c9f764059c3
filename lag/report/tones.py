"""How a status looks: one of five tones, the same on paper, by day and by night."""

from __future__ import annotations

from typing import Final

TONES: Final = {
    "DATA_LOSS": "bad",
    "AHEAD": "bad",
    "REWIND": "bad",
    "BLOCKED": "bad",
    "STOP": "bad",
    "NOT_CONSUMED": "bad",
    "STALL": "bad",
    "UNKNOWN": "dark",
    "RETENTION_RISK": "warn",
    "WARN": "warn",
    "NO_OFFSET": "warn",
    "INCOMPLETE": "dark",
    "CATCHING_UP": "note",
    "PAUSED": "note",
    "OK": "good",
    "LEFT": "note",
    "LATE": "bad",
    "UNDECIDED": "warn",
    "IN_TIME": "good",
}
"""Tone of each status; `dark` is "we cannot tell", which is neither good nor bad."""

LEVEL_TONES: Final = {"OK": "good", "WARN": "warn", "ERR": "bad"}


def tone(status: str) -> str:
    """Return the tone of a status or level; of an unheard-of one that of what is not known."""
    return TONES.get(status) or LEVEL_TONES.get(status, "dark")
