"""Simulated disks made from a picture of their files: a fresh one for each input."""

from __future__ import annotations

from collections.abc import Mapping

from pyddmq.testing import SimDisk

Image = dict[str, bytes]
"""Content of every file by its path."""


def image_of(disk: SimDisk, folder: str) -> Image:
    """Take a picture of all files below a folder."""
    found: Image = {}
    for name in disk.list(folder):
        path = f"{folder}/{name}"
        try:
            file = disk.open(path)
        except FileNotFoundError:
            found.update(image_of(disk, path))
        else:
            found[path] = file.read(0, file.size())
            file.close()
    return found


def disk_of(image: Mapping[str, bytes]) -> SimDisk:
    """Make a disk that holds the files of a picture, durably."""
    disk = SimDisk()
    for path, content in image.items():
        put(disk, path, content)
    return disk


def put(disk: SimDisk, path: str, content: bytes) -> None:
    """Make a file what `content` says, durably."""
    folder = path.rpartition("/")[0]
    disk.make_folder(folder)
    file = disk.open(path, create=True)
    file.truncate(0)
    if content:
        file.write(0, [content])
    file.sync()
    file.close()
    disk.sync_folder(folder)
