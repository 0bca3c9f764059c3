"""Watches the configuration file: reloads when it is another than the one that was read, and tells when it is gone."""

from __future__ import annotations

from collections.abc import Callable

from conf.sections.access_files import FileState
from proxy.node.reload import Reloader


class ConfigWatch:
    """Compares the file with the one that was read; `look` is called when it may have changed, and each second.

    Args:
        signature: Looks at the file.
        seen: What it gave when the file was read.
        reloader: Told of it.
    """

    def __init__(self, signature: Callable[[], FileState], seen: FileState, reloader: Reloader) -> None:
        self._signature = signature
        self._seen = seen
        self._reloader = reloader
        self._missing = False

    async def look(self) -> None:
        """Reload when the file is another one, or back; a file that vanishes changes nothing, but is told of."""
        now = self._signature()
        was_missing, self._missing = self._missing, now is None
        self._reloader.look(is_there=now is not None)
        if now is not None and (now != self._seen or was_missing):
            self._seen = now
            await self._reloader.reload()
