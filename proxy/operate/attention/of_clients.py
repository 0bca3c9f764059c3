"""Findings about clients that are held to a limit of their own (docs/security.md)."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.node.trouble_facts import NodeTroubles
from proxy.operate.attention.kinds import found
from proxy.operate.moments import moment_text
from proxy.operate.text import amount, short
from proxy.operate.views.findings import Finding

LIMITED_MAX = 5
"""Clients at a limit that are listed one by one."""
HELD_BACK = 30
"""Calls that a client was held back for, without a refusal, from which on that is a finding."""


def findings(troubles: NodeTroubles) -> Iterator[Finding]:
    """Who was refused, or held back often, within the last minute; some clients, and how many more."""
    held = [each for each in troubles.limited if each.refused or each.waited >= HELD_BACK]
    for client in held[:LIMITED_MAX]:
        more = f", and {amount(len(held) - LIMITED_MAX, 'further limit')} of clients" if len(held) > LIMITED_MAX else ""
        text = (
            f"The {client.kind} {short(client.name)} is at its limit since {moment_text(client.since_ms)}: "
            f"{client.said} ({client.limit}); {amount(client.waited, 'call')} delayed, {client.refused:,} "
            f"refused{more}."
        )
        yield found("client_limited", False, text, count=client.waited + client.refused)
