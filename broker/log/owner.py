"""Whose a message is that waits: the property that holds the principal who stored it (docs/security.md).

It goes with the record wherever that is put again, so that a restart knows it. What was stored without access rules
has none, and belongs to no principal.
"""

from __future__ import annotations

from broker.format.properties import find_property
from broker.log.put import Put

OWNER_NAME = b"__PYDDMQ_OWNER"


def owned(put: Put, owner: str | None) -> Put:
    """Return a put that belongs to a principal; None: to none."""
    if owner is None:
        return put
    block = put.properties
    if block and not block.endswith(b"\x02"):
        block += b"\x02"
    return put._replace(properties=b"%b%b\x01%b\x02" % (block, OWNER_NAME, owner.encode()))


def owner_of(block: bytes) -> str:
    """Return the principal that a record with these properties belongs to; "" for none."""
    return (find_property(block, OWNER_NAME) or b"").decode("utf-8", "replace")


def is_foreign(owner: str, asking: str | None) -> bool:
    """Whether what belongs to `owner` is another principal's; None asks for all, and "" owns nothing."""
    return asking is not None and owner not in ("", asking)
