"""What each command needs where a node has rules: docs/commands.md shows it, and a test compares it with the routes.

Commands have no rights of their own: what is in here is that of what they ask a node for, as the principal of their
token, certificate or network. Those of `FILES` ask none, and need what the file system lets their user do.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from proxy.access.rules import Permission

Right = Permission | str

FILES = "files"
"""It works on files, with the permissions of its user."""
NOTHING = ""
"""It asks for nothing that needs a right."""
_VIEW, _OPERATE, _ADMINISTER = (Permission.VIEW,), (Permission.OPERATE,), (Permission.ADMINISTER,)
_BOTH = (Permission.VIEW, Permission.OPERATE)
_FILES, _NOTHING = (FILES,), (NOTHING,)

RIGHTS: Mapping[str, tuple[Right, ...]] = MappingProxyType(
    {
        "serve": _FILES,
        "version": _NOTHING,
        "send": (Permission.PRODUCE,),
        # Dead letters are read through another group, which is looked for: view.
        "pull": (Permission.CONSUME, Permission.VIEW),
        "limits": _VIEW,
        "stats": _VIEW,
        "reload": _ADMINISTER,
        "actions list": _FILES,
        "actions try": _FILES,
        "config check": _FILES,
        "demo events": (Permission.PRODUCE, Permission.CONSUME),
        # With a node of their own.
        "demo lag": _FILES,
        "access explain": _FILES,
        "access token create": _FILES,
        "access token list": _FILES,
        "access token revoke": _FILES,
        "groups show": _VIEW,
        "groups stuck": _VIEW,
        "groups retry": _BOTH,
        "groups skip": _BOTH,
        "groups dead-letter": _BOTH,
        "groups pause": _OPERATE,
        "groups resume": _OPERATE,
        "lag show": _VIEW,
        "lag check": _VIEW,
        "lag explain": _NOTHING,
        "lag export": _FILES,
        "lag incidents": _FILES,
        "lag backlog": _FILES,
        "lag compact": _FILES,
        "lag record": _FILES,
        "lag report": _FILES,
        "lag residence": _FILES,
        "lag slo": _VIEW,
        "lag watch": _FILES,
        "topics show": _VIEW,
        "topics create": _ADMINISTER,
        "topics alter": _ADMINISTER,
        # View: to ask whether it is meant.
        "topics delete": (Permission.VIEW, Permission.ADMINISTER),
        "offsets show": _VIEW,
        "offsets reset": _OPERATE,
        "delays list": _VIEW,
        "delays show": _VIEW,
        "delays cancel": _BOTH,
        "dlq list": _VIEW,
        "dlq show": _VIEW,
        "dlq stats": _VIEW,
        # View: to show the progress, where that is allowed.
        "dlq redrive": _BOTH,
        "transactions list": _VIEW,
        "transactions show": _VIEW,
        "transactions commit": _BOTH,
        "transactions rollback": _BOTH,
        "transactions resume": _BOTH,
        "transactions stats": _VIEW,
        "timers list": _VIEW,
        "timers show": _VIEW,
        "timers cancel": _BOTH,
        "timers reschedule": _OPERATE,
        "timers pause": _ADMINISTER,
        "timers resume": _ADMINISTER,
        "timers stats": _VIEW,
        "messages show": (Permission.READ_BODIES,),
        "messages query": (Permission.READ_BODIES,),
        "messages tail": (Permission.READ_BODIES,),
        "messages export": (Permission.READ_BODIES,),
        "tls dev": _FILES,
        "store broker-conf": _FILES,
        "store check": _FILES,
        "store handover": _FILES,
        "store stat": _FILES,
        "store dump": _FILES,
        "store find": _FILES,
        "store backup": _FILES,
        "store restore": _FILES,
    }
)
