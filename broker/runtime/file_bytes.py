"""The bytes of a file that is in memory: large ones take room only where something was written, as on a real disk.

A timer wheel of 38 MB with three slots in use would otherwise cost each simulated node twice that.
"""

from __future__ import annotations

import mmap

FileBytes = bytearray | mmap.mmap

SPARSE_BYTES = 1 << 20
"""From this size on the kernel gives pages when they are written to."""
_BLOCK_BYTES = 1 << 16
_ZEROS = bytes(_BLOCK_BYTES)


def resized(old: FileBytes, size: int) -> FileBytes:
    """Return a new object of `size` bytes that begins with those of `old`; what is beyond them is 0."""
    if size < SPARSE_BYTES:
        new = bytearray(old[:size])
        return new + bytes(size - len(new)) if len(new) < size else new
    sparse = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    end = min(size, len(old))
    for at in range(0, end, _BLOCK_BYTES):
        block = old[at : min(at + _BLOCK_BYTES, end)]
        if block != _ZEROS[: len(block)]:
            sparse[at : at + len(block)] = block
    return sparse


def written(old: FileBytes, offset: int, data: bytes) -> FileBytes:
    """Write `data` at `offset` and return the object that has it: `old` unless it had to grow."""
    end = offset + len(data)
    new = _grown(old, end) if end > len(old) else old
    new[offset:end] = data
    return new


def _grown(old: FileBytes, size: int) -> FileBytes:
    if isinstance(old, bytearray) and size < SPARSE_BYTES:
        try:
            old.extend(bytes(size - len(old)))
        except BufferError:
            # Somebody has a view on it.
            return resized(old, size)
        return old
    return resized(old, size)
