"""Whose a message is that waits: the property that holds the principal who stored it (docs/security.md).

It goes with the record wherever that is put again, so that a restart knows it. What was stored where nobody asked who
sends has none, and belongs to nobody.
"""

from __future__ import annotations

from broker.format.properties import find_property
from broker.log.put import Put

OWNER_NAME = b"__PYDDMQ_OWNER"


def owned(put: Put, owner: str | None) -> Put:
    """Return a put that belongs to somebody; None: to nobody."""
    if owner is None:
        return put
    block = put.properties
    if block and not block.endswith(b"\x02"):
        block += b"\x02"
    return put._replace(properties=b"%b%b\x01%b\x02" % (block, OWNER_NAME, owner.encode()))


def owner_of(block: bytes) -> str:
    """Return whom a record with these properties belongs to; "" for nobody."""
    return (find_property(block, OWNER_NAME) or b"").decode("utf-8", "replace")


def is_foreign(owner: str, asking: str | None) -> bool:
    """Whether what belongs to `owner` is another's than who asks; None asks for everybody, and "" owns nothing."""
    return asking is not None and owner not in ("", asking)
