"""What needs attention, as the node says it, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.cli.output import print_text
from proxy.operate.text import amount, printable
from proxy.operate.views.findings import Finding

SHOWN_MAX = 60


def print_findings(found: Sequence[Finding]) -> None:
    """Print findings, a line each with what to do; nothing when there is none."""
    if not found:
        return
    print_text("Needs attention")
    for each in found[:SHOWN_MAX]:
        print_text(printable(each.text), first="  !! " if each.bad else "   ! ", then="     ")
        print_text(printable(each.advice), first="     ", then="     ")
    if len(found) > SHOWN_MAX:
        print_text(f"  and {amount(len(found) - SHOWN_MAX, 'more finding')}: --json shows all")
    print_text("")
