"""Records of this broker's own layout, found in a mapped segment: where body and property block stand, message keys.

Both are done by an accelerator alone (`broker.runtime.accelerators`). Where it does not run, and whatever is unusual,
each record is read and looked at by itself: see `CommitLog.locate`, and those who ask for keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from broker.format.record import Located
from broker.runtime.accelerators import accelerated

Place = tuple[Any, ...]
"""Commit-log offset and size of a record, as ints; what follows them does not matter."""


def _locate_none(  # noqa: PLR0917 - what compiled functions take by name costs more
    places: Sequence[Place], at: int, view: memoryview, base: int, visible_end: int, cold_end: int, found: list[Located]
) -> int:
    """Locate records of this broker's own layout in one segment.

    Args:
        places: Where; those from `at` on are looked at.
        at: The first of them.
        view: The mapped segment.
        base: Commit-log offset of its first byte.
        visible_end: Commit-log offset up to which there are records.
        cold_end: That below which a record's sum is compared.
        found: Gets what is found.

    Returns:
        Index of the first place that is not in this segment or holds no such record.
    """
    return at


def _keys_none(located: Sequence[Located], foreign: bytes) -> list[bytes | None] | None:
    """Return the KEYS property of records, as `find_property` does of one block.

    Args:
        located: Where they stand.
        foreign: Name of a property, with what follows a name. When any record has it None is returned: more than the
            keys must be looked at.
    """
    return None


locate_usual = accelerated("broker.format.locate_accelerator", "locate", _locate_none)
message_keys = accelerated("broker.format.locate_accelerator", "keys", _keys_none)
