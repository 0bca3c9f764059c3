"""Finds out, after a kill or a failed write, what of a file is right: see `actions.sinks.files.ledger`."""

from __future__ import annotations

from zlib import crc32

from actions.sinks.files.folders import Folders
from actions.sinks.files.layout import aside
from actions.sinks.files.ledger import Ledger, OpenFile
from pyddmq.actions import Context


async def settle(file: OpenFile, ledger: Ledger, folders: Folders, context: Context) -> None:
    """Make a file and what the ledger says of it one; a file that nothing more is put into leaves the ledger.

    Raises:
        ServerAway: It could not be asked; the ledger says what it said.
    """
    path = aside(file.path)
    size = await folders.size(path)
    if size is None:
        await _settle_closed(file, ledger, folders, context)
        return
    if file.pending is not None and await _has_pending(file, path, size, folders):
        ledger.found_in(file, context.wall_ms())
    elif size < file.length:
        context.count("file_cut")
        context.note("sink_file_cut", file=file.path, bytes=size, expected=file.length)
        await folders.publish(path, file.path)
        del ledger.files[file.path]
        return
    if size > file.length:
        await folders.truncate(path, file.length)
    file.pending = None
    if file.whole and file.length:
        await folders.publish(path, file.path)
    if file.whole or not file.length:
        del ledger.files[file.path]


async def _settle_closed(file: OpenFile, ledger: Ledger, folders: Folders, context: Context) -> None:
    size = await folders.size(file.path)
    if size is not None and file.pending is not None and await _has_pending(file, file.path, size, folders):
        ledger.found_in(file, context.wall_ms())
    elif size is None and file.length:
        context.count("file_gone")
        context.note("sink_file_gone", file=file.path, expected=file.length)
    del ledger.files[file.path]


async def _has_pending(file: OpenFile, path: str, size: int, folders: Folders) -> bool:
    pending = file.pending
    assert pending is not None
    if size < pending.end:
        return False
    found = await folders.read(path, file.length, pending.end - file.length)
    return len(found) == pending.end - file.length and crc32(found) == pending.crc
