"""Which right each method of both services needs. A port takes no method that is not in here.

The looks are `proxy.services.access.guard`'s; a test makes the list of methods from the interface definitions and calls
each of them without its right.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from proxy.access.rules import Permission

RIGHTS: Mapping[str, tuple[Permission, ...]] = MappingProxyType(
    {
        # For all clients: by it they get an identity.
        "authenticate": (),
        # On the group; each result that rides on it by its own.
        "pull": (Permission.CONSUME,),
        "submit": (Permission.CONSUME,),
        "fetch": (Permission.CONSUME,),
        "ack": (Permission.CONSUME,),
        # On the group, either of the two.
        "getConsumeStats": (Permission.CONSUME, Permission.VIEW),
        # On the topic, of a batch on each; a cancel's message besides is its principal's.
        "sendSync": (Permission.PRODUCE,),
        "sendAsync": (Permission.PRODUCE,),
        "sendBatchSync": (Permission.PRODUCE,),
        "sendDelaySync": (Permission.PRODUCE,),
        # On the producer group, and on the topic of a half; what is decided and asked about besides is its principal's.
        "sendHalfSync": (Permission.TRANSACT, Permission.PRODUCE),
        "endTransaction": (Permission.TRANSACT,),
        "fetchChecks": (Permission.TRANSACT,),
    }
)


def check_handlers(methods: Mapping[str, object]) -> None:
    """Assert that each method that a port takes has its right in the table."""
    unguarded = methods.keys() - RIGHTS.keys()
    assert not unguarded, f"no right is listed for {sorted(unguarded)}: proxy/services/access/methods.py"
