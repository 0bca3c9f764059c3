"""The configuration file as it was read last, with its errors at their lines, beside the configuration in force."""

from __future__ import annotations

import re
from collections.abc import Sequence

from broker.views import View
from proxy.admin.console.calls import PageCall
from proxy.admin.console.node import EACH_MAX, yaml_text

LINES_SHOWN = 3_000


class ConfigurationLine(View, frozen=True, kw_only=True):
    """A line of the file.

    Attributes:
        number: Its number, from 1.
        text: Its text, with secrets masked.
        problems: What is wrong there.
    """

    number: int
    text: str
    problems: Sequence[str] = ()


class ConfigurationPageView(View, frozen=True, kw_only=True):
    """The file and the configuration in force.

    Attributes:
        now_ms: Now, by the node's wall clock.
        file: The configuration file; "" without one.
        refused_ms: When the file was last refused; 0: it is in force.
        missing_ms: Since when the file is missing; 0: it is there.
        lines: The file as it was read last.
        lines_total: How many lines it has.
        problems: What is wrong with the file as a whole, or at a line that is not shown.
        in_force: The configuration in force as YAML, without defaults and secrets.
    """

    now_ms: int
    file: str
    refused_ms: int
    missing_ms: int
    lines: Sequence[ConfigurationLine]
    lines_total: int
    problems: Sequence[str]
    in_force: str


async def configuration(call: PageCall) -> ConfigurationPageView:
    """Return what the page of the configuration shows."""
    view = call.node.configuration
    texts = view.text.splitlines()
    at_lines: dict[int, list[str]] = {}
    others = []
    for problem in view.problems:
        found = re.match(rf"{re.escape(view.file)}:(\d{{1,9}}):(?:\d{{1,9}}:)? (.*)", problem, re.DOTALL)
        if found is not None and 0 < int(found[1]) <= min(len(texts), LINES_SHOWN):
            at_lines.setdefault(int(found[1]), []).append(found[2])
        else:
            others.append(problem)
    return ConfigurationPageView(
        now_ms=call.node.clock.wall_ms(),
        file=view.file,
        refused_ms=view.refused_ms,
        missing_ms=view.missing_ms,
        lines=[
            ConfigurationLine(number=number, text=text, problems=at_lines.get(number, ()))
            for number, text in enumerate(texts[:LINES_SHOWN], 1)
        ],
        lines_total=len(texts),
        problems=others,
        in_force=yaml_text(call.node.settings(each_max=EACH_MAX)),
    )
