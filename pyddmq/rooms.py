"""Where the rooms are, and how they are found whatever else has their names (D42).

The rooms import each other by names that programs have for modules of their own: `conf`, `actions`. An installed pyddmq
keeps them in a folder of its own, a checkout has them at its root; a module above the rooms puts that folder first
on the path before it imports any. A program that imports the client alone never does. In the language of Python 3.8.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

ROOMS = ("actions", "broker", "conf", "lag", "proxy", "upstream")

CLIENT_ALONE = (
    "{} is not in this installation of pyddmq, which is the client alone: "
    "`pip install 'pyddmq[server]'` adds the node, the command line and the embedded broker"
)
_ONE_OF_THE_SERVERS = "structlog"
"""Every room but `conf` needs it, and no other dependency brings it along."""


class ClientAlone(ImportError):
    """Something was asked for that needs the extra `server`."""


class NameTaken(ImportError):
    """The program has a module of its own that has the name of a room, and has imported it."""


def folder() -> str:
    """Return the folder of the rooms."""
    here = Path(__file__).resolve().parent
    installed = here / "_rooms"
    return str(installed if installed.is_dir() else here.parent)


def pin(asked_for: str) -> None:
    """Have the rooms found before everything else on the path; harmless the second time.

    Args:
        asked_for: What is about to be imported, for people.

    Raises:
        ClientAlone: What the rooms need is not installed.
        NameTaken: A module that is imported already is in the way.
    """
    if find_spec(_ONE_OF_THE_SERVERS) is None:
        raise ClientAlone(CLIENT_ALONE.format(asked_for))
    place = folder()
    for room in ROOMS:
        if room not in sys.modules:
            continue
        file = str(getattr(sys.modules[room], "__file__", None))
        if Path(file).resolve() != Path(place, room, "__init__.py"):
            raise NameTaken(
                f"{asked_for} needs the name {room!r}, under which this program has imported {file}: "
                "give that another name"
            )
    if sys.path[:1] != [place]:
        sys.path.insert(0, place)
