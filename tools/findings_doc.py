"""Makes docs/findings.md from the table of findings."""

from __future__ import annotations

from proxy.operate.attention.kinds import KINDS

_HEAD = """\
# Findings

What can need attention, and what to do, made from the code (`make docs`).
[Operations](operations.md#what-needs-attention) says where findings are shown. The text of a finding names the group,
the message or the client.

| finding | trouble | what to do |
| --- | --- | --- |
"""


def render() -> str:
    """Return the page."""
    return _HEAD + "".join(f"| `{name}` | {kind.trouble} | {kind.advice} |\n" for name, kind in KINDS.items())
