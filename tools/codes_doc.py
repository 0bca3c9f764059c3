"""Makes docs/codes.md from the result codes of the wire."""

from __future__ import annotations

from pyddmq.codes import PullCode, ResultCode

_HEAD = """\
# Codes

Codes in the answers of the Thrift ports, made from the code (`make docs`). A number keeps its meaning.
[Protocol](protocol.md) has the calls, [the client](client.md#errors) its exceptions.
"""
_PARTS = (
    ("Result.code and DelayResult.code", "Of sends, cancels and decisions; from 40 on of pyddmq alone.", ResultCode),
    ("PullException", "Of pulls; 11 to 13 are codes of a fetch's answer.", PullCode),
)


def render() -> str:
    """Return the page."""
    parts = [_HEAD]
    for title, text, codes in _PARTS:
        parts.append(
            f"\n## {title}\n\n{text}\n\n| code | name | meaning | retry may help |\n| --- | --- | --- | --- |\n"
        )
        for code in codes:
            parts.append(f"| {int(code)} | {code.name} | {code.text} | {'yes' if code.retriable else 'no'} |\n")
    return "".join(parts)
