"""What an operator accepted of a store of RocketMQ's although it is not read here: by folder, its content then.

`pyddmq serve --accept` writes it before the store is opened; the same content is not asked for again.
"""

from __future__ import annotations

from collections.abc import Sequence

from broker.errors import StoreForeign
from broker.opening.foreign import UnsupportedPart, in_layout
from broker.runtime.sealed_file import SealedFile
from broker.runtime.seams import Disk

FILE = "pyddmq/accepted.json"


def accept(root: str, disk: Disk) -> list[UnsupportedPart]:
    """Accept what needs it, durably; returns what was not accepted before.

    Raises:
        StoreUnreadable: The file is damaged.
        OSError: A file cannot be read or written.
    """
    found = in_layout(root, disk)
    asking = not_accepted(root, found, disk)
    if asking:
        disk.make_folder(f"{root}/pyddmq")
        _file(root, disk).save({each.file: each.content for each in found if each.content})
    return asking


def not_accepted(root: str, found: Sequence[UnsupportedPart], disk: Disk) -> list[UnsupportedPart]:
    """Return what needs to be accepted and was not, or has changed since. Raises the same."""
    asking = [each for each in found if each.content]
    known = _file(root, disk).load() or {} if asking else {}
    return [each for each in asking if known.get(each.file) != each.content]


def refuse(root: str, disk: Disk) -> None:
    """Refuse what is never opened, and what no operator has accepted.

    Raises:
        StoreForeign: There is something.
        StoreUnreadable, OSError: As `accept`.
    """
    found = in_layout(root, disk)
    never = [each for each in found if each.refused]
    if never:
        raise StoreForeign(root, [each.sentence for each in never], {each.kind: each.count for each in never})
    asking = not_accepted(root, found, disk)
    if asking:
        sentences = [each.sentence for each in asking]
        sentences[-1] += "; or start the node once with `pyddmq serve --accept`"
        raise StoreForeign(root, sentences, {each.kind: each.count for each in asking})


def _file(root: str, disk: Disk) -> SealedFile:
    return SealedFile(disk, f"{root}/{FILE}")
