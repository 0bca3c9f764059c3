"""Journals of two nodes with one name: what keeps them apart is the folder that each was read from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from broker.runtime.seams import Disk
from lag.blocks import BlockReader
from lag.journal.files import live_files, parse

Labels = Mapping[str, Mapping[tuple[str, str], str]]
"""By folder, of each node (cluster and name) whose name another folder has too, what it is called here."""


def labels_of(disk: Disk, folders: Iterable[str]) -> Labels:
    """Return names for nodes that two folders have; by the heads of the folders' files."""
    nodes = {folder: _nodes(disk, folder) for folder in folders}
    shared: dict[tuple[str, str], int] = {}
    for found in nodes.values():
        for node in found:
            shared[node] = shared.get(node, 0) + 1
    labels = {
        folder: {node: f"{node[1]} ({folder})" for node in sorted(found) if shared[node] > 1}
        for folder, found in nodes.items()
    }
    return {folder: found for folder, found in labels.items() if found}


def _nodes(disk: Disk, folder: str) -> set[tuple[str, str]]:
    try:
        names = disk.list(folder)
    except OSError:
        return set()
    found = set()
    for file in live_files(each for name in names if (each := parse(name)) is not None):
        reader = BlockReader(disk, f"{folder}/{file.name}")
        reader.close()
        if reader.head is not None:
            found.add((reader.head.cluster, reader.head.node))
    return found
