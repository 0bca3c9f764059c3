"""What a sink of files wants to write by."""

from __future__ import annotations

from dataclasses import dataclass

from conf.secrets import Secret


@dataclass(frozen=True, slots=True, kw_only=True)
class FolderWish:
    """What files are to be written by.

    Attributes:
        kind: `disk`, `webhdfs`, or `arrow`.
        urls: Of name nodes, or one of a file system that pyarrow knows.
        user: Name at the other system.
        token: Delegation token, or secret key; not shown.
        access_key, endpoint, region, ca_file: As the options say.
        timeout_seconds: For a call.
    """

    kind: str
    urls: tuple[str, ...] = ()
    user: str = ""
    token: Secret | None = None
    access_key: str | None = None
    endpoint: str | None = None
    region: str | None = None
    ca_file: str | None = None
    timeout_seconds: float = 30.0
