"""Commands that leave no second effect on a repeat: one script that counts in a marker how far it has come.

A script runs alone, and its writes reach the server's log together. So marker and effect are always of one state: a
repeat goes on behind the last command that had its effect, also where one of them was refused in between.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from actions.sinks.redis.names import Words

SCRIPT = b"""\
local done = tonumber(redis.call('GET', KEYS[1]) or '0')
local at = 2
for number = 1, tonumber(ARGV[2]) do
  local size = tonumber(ARGV[at + 1])
  if number > done then
    local answer = redis.pcall(unpack(ARGV, at + 2, at + 1 + size))
    if type(answer) == 'table' and answer.err then
      return {number, answer.err}
    end
    redis.call('SET', KEYS[1], number, 'EX', ARGV[1])
  end
  at = at + 1 + size
end
return {0, done}
"""
SCRIPT_SUM = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest()
"""Name of the script at the server."""


def once(commands: Sequence[Words], marker: str, seconds: int) -> Words:
    """Return the call of the script for one message; `SCRIPT LOAD` comes before it in the same round trip.

    It answers the number of the command that was refused, from 1, and why; or 0, and how many had been done before.
    """
    words: list[str | bytes | int | float] = ["EVALSHA", SCRIPT_SUM, 1, marker, seconds, len(commands)]
    for command in commands:
        words += [len(command), *command]
    return tuple(words)


def load() -> Words:
    """Return the command that makes the script known; harmless when it is."""
    return ("SCRIPT", "LOAD", SCRIPT)
