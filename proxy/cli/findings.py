"""What needs attention, as the node says it, on the terminal."""

from __future__ import annotations

from typing import Any

from proxy.cli.output import print_line, printable


def print_findings(answer: dict[str, Any]) -> None:
    """Print the findings of an answer, a line each with what to do; nothing when there is none."""
    found = answer.get("findings") or []
    if not found:
        return
    print_line("Needs attention")
    for each in found:
        print_line(f"  {'!!' if each['severity'] == 'bad' else ' !'} {printable(each['text'])}")
        print_line(f"     {printable(each['advice'])}")
    print_line("")
