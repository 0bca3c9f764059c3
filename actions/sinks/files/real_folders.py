"""Makes the real folders that a wish names; what they need is imported then (D38)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from actions.http.connection_options import HttpWish
from actions.sinks.files.folders import Folders, FolderWish
from actions.sinks.files.local import LocalFolders
from actions.sinks.local_state import Keep

if TYPE_CHECKING:
    from aiohttp import BaseConnector


def folders(wish: FolderWish, keep: Keep, http: Callable[[HttpWish], BaseConnector]) -> Folders:
    """Return what files are written by.

    Raises:
        SecretUnreadable: A secret is not where it should be.
    """
    if wish.kind == "disk":
        return LocalFolders(keep)
    if wish.kind == "webhdfs":
        from actions.sinks.files.webhdfs import WebHdfs

        return WebHdfs(wish, http)
    from actions.sinks.files.arrow import ArrowFolders

    return ArrowFolders(wish, keep)
