"""The interface definitions, found and loaded.

They live in `thrift/` of a checkout and travel as package data in `pyddmq/idl_files/` of an installed distribution, so
that no folder named `thrift` is ever beside Apache's package of that name (D20).
"""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType

NAMES = ("consumer", "producer")

_PACKAGED = Path(__file__).parent / "idl_files"
_CHECKOUT = Path(__file__).parent.parent / "thrift"


class IdlMissing(Exception):
    """The interface definitions are neither beside the package nor in a checkout: the installation is damaged."""


def path(name: str) -> Path:
    """File of one interface definition.

    Args:
        name: `consumer` or `producer`.

    Raises:
        IdlMissing: There is no such file, packaged or in a checkout.
    """
    for folder in (_PACKAGED, _CHECKOUT):
        found = folder / f"{name}.thrift"
        if found.is_file():
            return found
    raise IdlMissing(
        f"{name}.thrift is neither in {_PACKAGED} nor in {_CHECKOUT}: reinstall pyddmq, or run it from a full checkout"
    )


@functools.cache
def load(name: str) -> ModuleType:
    """Load one interface definition with thriftpy2, once per process.

    The module has a class per struct (`load("consumer").PullRequest`) and per service
    (`load("consumer").ConsumerService`), as thriftpy2's own clients and servers take them.

    Raises:
        IdlMissing: As for `path`.
    """
    # Here, because commands that call no node import this module too.
    import thriftpy2

    module: ModuleType = thriftpy2.load(str(path(name)), module_name=f"pyddmq_{name}_thrift")
    return module
