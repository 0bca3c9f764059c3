"""What a cache keeps of a key of the waiting topic: a row, made of its last record."""

from __future__ import annotations

from typing import NamedTuple

from upstream.kafka.waiting.records import (
    ChecksHead,
    EndedHead,
    KeyState,
    WaitingHead,
    head_of,
    identity_text,
    parse_key,
)

_HALF_STATES = {"undecided": KeyState.HALF, "discarded": KeyState.DISCARDED}


class CachedRecord(NamedTuple):
    """One key.

    Attributes:
        key: Of its record.
        state: What it has.
        at: When it is due, or ended, ms since the epoch; of a half its next check, of a request its offset.
        topic, principal: Of its identity.
        owned: The owner wrote its record.
        position: Offset of its record.
        value: As it is in the log.
        group: Producer group of a half; "": it is none.
        made: When a half was first written, ms since the epoch.
        checks: How often it was checked.
        level: Its delay level; 0: none.
        id: Of its row; 0: it has none yet.
    """

    key: bytes
    state: int
    at: int
    topic: str
    principal: str
    owned: int
    position: int
    value: bytes
    group: str = ""
    made: int = 0
    checks: int = 0
    level: int = 0
    id: int = 0

    @property
    def identity(self) -> bytes:
        """Whose it is (`Identity.text`)."""
        return identity_text(self.key)


def row_of(key: bytes, value: bytes, offset: int) -> CachedRecord:
    """Return the row of a record that nothing else of its identity changes. Raises Damaged, NewerRecord."""
    identity, _ = parse_key(key)
    head = head_of(value)
    group, owned, made, level, checks = "", 0, 0, 0, 0
    if isinstance(head, EndedHead):
        state, at, owned, group = KeyState.ENDED, head.at_ms, 1, head.group
    elif isinstance(head, WaitingHead):
        state, at, owned, level = KeyState.WAITING, head.due_ms, int(head.owned), head.level
        if head.half is not None:
            state = _HALF_STATES.get(head.half.state, KeyState.WAITING)
            group, made = head.half.group, head.at_ms
    elif isinstance(head, ChecksHead):
        state, at, checks = KeyState.CHECKS, head.next_ms, head.times
    else:
        state, at = KeyState.REQUEST, offset
    return CachedRecord(
        key, state, at, identity.topic, identity.principal, owned, offset, value, group, made, checks, level
    )
