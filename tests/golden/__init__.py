"""Frames as libthrift 0.9.2 writes them, the version that DDMQ is built with, and the values that they hold.

`libthrift-0.9.2.txt` has a line per frame: name of the case, protocol, the frame with its length in hex. It is the
output of `Golden.java write` (tests/interop); `make interop` checks that it still is.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FRAMES_FILE = Path(__file__).parent / "libthrift-0.9.2.txt"


class Golden(NamedTuple):
    """One frame."""

    case: str
    protocol: str
    frame: bytes


def golden_frames() -> list[Golden]:
    """All frames, in the order of the file."""
    found = []
    for line in FRAMES_FILE.read_text().splitlines():
        case, protocol, frame = line.split()
        found.append(Golden(case, protocol, bytes.fromhex(frame)))
    return found
