"""JSON as RocketMQ writes it, which is not always JSON. No I/O."""

from __future__ import annotations

import json
import re
from typing import Any

# fastjson writes integer keys without quotes, which strict JSON refuses.
_BARE_KEY = re.compile(r"([{,]\s*)(-?\d+)(\s*:)")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


def parse_loose(text: str) -> Any:
    """Parse JSON, also with integer keys that lack quotes as fastjson writes them.

    Raises:
        ValueError: Neither.
        RecursionError: It is nested too deep.
    """
    try:
        return json.loads(text)
    except ValueError:
        pieces = []
        at = 0
        # Texts inside strings must stay as they are, even where they look like a key.
        for match in _STRING.finditer(text):
            pieces.append(_BARE_KEY.sub(r'\1"\2"\3', text[at : match.start()]))
            pieces.append(match.group())
            at = match.end()
        pieces.append(_BARE_KEY.sub(r'\1"\2"\3', text[at:]))
        return json.loads("".join(pieces))
