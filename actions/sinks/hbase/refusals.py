"""Sorts what HBase answers into the kinds of `actions.sinks.faults`."""

from __future__ import annotations

from actions.sinks.faults import MessageRefused, ServerAway

AWAY = ("NotServingRegion", "RegionTooBusy", "ServerNotRunning", "RetriesExhausted", "CallTimeout", "SocketTimeout",
        "ConnectionClosed", "ConnectException", "ConnectionRefused", "MasterNotRunning", "PleaseHold",
        "RegionServerStopped", "RegionServerAborted", "CallQueueTooBig", "RegionMoved", "RegionOpening", "NoServerFor",
        "FailedServer", "ZooKeeper", "KeeperException", "DroppedSnapshot", "No space left")  # fmt: skip
"""Parts of refusals that say nothing of the mutation: the region or its server is on the move, busy or gone."""

FINAL = ("NoSuchColumnFamily", "TableNotFound", "TableNotEnabled", "AccessDenied", "RowTooBig", "ConstraintException",
         "FailedSanityCheck", "WrongRegion")  # fmt: skip
"""Parts of those that another attempt meets again."""


WAITS = ("SpaceLimitingException", "QuotaExceeded", "RpcThrottling")
"""Parts of refusals of one table or user that an operator, or time, ends: a quota."""


def fault_of(text: str) -> Exception:
    """Return the fault that a refusal with its causes means; anything unknown is about the mutation."""
    first = text.partition("\n")[0][:500]
    # HBase's client wraps what is final, too, into "retries exhausted".
    if any(part in text for part in FINAL):
        return MessageRefused(first)
    if any(part in text for part in WAITS):
        return MessageRefused(first, waits=True)
    return ServerAway(first) if any(part in text for part in AWAY) else MessageRefused(first)
