"""What needs attention, as the node says it, on the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.cli.output import print_line, printable
from proxy.operate.text import amount
from proxy.operate.views.findings import Finding

SHOWN_MAX = 60


def print_findings(found: Sequence[Finding]) -> None:
    """Print findings, a line each with what to do; nothing when there is none."""
    if not found:
        return
    print_line("Needs attention")
    for each in found[:SHOWN_MAX]:
        print_line(f"  {'!!' if each.bad else ' !'} {printable(each.text)}")
        print_line(f"     {printable(each.advice)}")
    if len(found) > SHOWN_MAX:
        print_line(f"  and {amount(len(found) - SHOWN_MAX, 'more finding')}: --json shows all")
    print_line("")
