"""The section `admin`: what the admin port answers to, and how much of the audit trail is kept (docs/admin.md)."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator

from conf.base import Model, Reload, setting

_LIVE = Reload.LIVE
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9_]([a-z0-9_-]{0,62})(\.[a-z0-9_]([a-z0-9_-]{0,62}))*\Z", re.IGNORECASE)


def _check_host(name: str) -> str:
    if not _HOST.match(name):
        raise ValueError(
            f"{name!r} is not a valid host name; write for example node-1.example.com, without scheme and port"
        )
    return name.lower()


HostName = Annotated[str, AfterValidator(_check_host)]


class AdminConfig(Model):
    """The section `admin`."""

    hosts: list[HostName] = setting(
        [],
        "Further host names of the admin port, such as `node-1.example.com`, without a port. Under other "
        "names than these, `localhost`, `node.adminHost` and addresses it answers only probes, so that no "
        "web page can bind its own name to it.",
        reload=_LIVE,
        max_length=1000,
    )
    audit_file_bytes: int = setting(
        4 * 1024 * 1024,
        "Size in bytes at which a file of the audit trail is closed and a new one started.",
        reload=_LIVE,
        ge=64 * 1024,
        le=2**30,
    )
    audit_files: int = setting(
        8,
        "Files kept of each of the two trails, changes and denials, including the present one; the oldest is deleted.",
        reload=_LIVE,
        ge=2,
        le=1000,
    )
    read_only: bool = setting(
        False,
        "The console makes no changes: it shows no buttons, and changes that a browser sends are refused. The CLI is "
        "not affected.",
        reload=_LIVE,
    )
