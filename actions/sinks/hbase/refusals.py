"""What HBase's refusals say: of the mutation, or of the server."""

from __future__ import annotations

AWAY = ("NotServingRegion", "RegionTooBusy", "ServerNotRunning", "RetriesExhausted", "CallTimeout", "SocketTimeout",
        "ConnectionClosed", "ConnectException", "ConnectionRefused", "MasterNotRunning", "PleaseHold",
        "RegionServerStopped", "RegionServerAborted", "CallQueueTooBig", "RegionMoved", "RegionOpening", "NoServerFor",
        "FailedServer", "ZooKeeper", "KeeperException", "DroppedSnapshot", "No space left")  # fmt: skip
"""Parts of refusals that say nothing of the mutation: the region or its server is on the move, busy or gone."""

FINAL = ("NoSuchColumnFamily", "TableNotFound", "TableNotEnabled", "AccessDenied", "RowTooBig", "ConstraintException",
         "FailedSanityCheck", "WrongRegion")  # fmt: skip
"""Parts of those that another attempt meets again."""


def is_away(text: str) -> bool:
    """Whether a refusal, with its causes, says nothing of the mutation."""
    # HBase's client wraps what is final, too, into "retries exhausted".
    return any(part in text for part in AWAY) and not any(part in text for part in FINAL)
