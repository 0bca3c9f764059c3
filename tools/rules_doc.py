"""Makes docs/lag-rules.md from the tables of the rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from inspect import getdoc

from lag.rules.causes import CAUSES
from lag.rules.facts import WINDOW_FACTS
from lag.rules.limits import NO_LIMIT, LagLimits
from lag.rules.quantities import ALL, TOPIC_QUANTITIES
from lag.rules.statuses import STATUSES
from lag.rules.waiting_rules import WAITING, WAITING_STATUSES

_INTRODUCTION = """\
# Rules of consumption lag

Figures computed from recorded samples, and the conditions of each status and cause. This page is made from the tables
of
`lag/rules/` (`make docs`); a test keeps the two equal. `pyddmq lag explain NAME`
shows the same words.

A *sample* describes one queue of one group at one time (`lag/samples.py`), by default every 10 s. Rules use the newest
sample and a *window* of samples before it. The same rules run over plain numbers (live node,
command line) and over columns of Spark (`lag/spark/columns.py`); one table of cases (`tests/unit/lag/rules/cases.py`)
holds both.

- **Null means "unknown", never 0.** Values computed from null are null: `x and y` is false if one is false, else null
  if one is null. `not surely x` is also true if x is null. OK has its own condition, which needs known values; a queue
  without a matching status is UNKNOWN.
- **Time lag is never extrapolated.** It is read from the message (`message`), or interpolated between two samples whose
  ends enclose the message's offset (`interpolated`). Otherwise it is `bounded`: the bounds are given, and the figure is
  null.
- A group's **position** is its committed offset, or the first kept message where that is above it.
- **Rates** are of the last half minute. **Trends** are medians of slopes over pairs of samples that are half of the
  samples apart: one odd sample moves them little, bursts are averaged, and only samples since an offset last fell
  count. Verdicts use trends. Lost, skipped and reset-over messages are not consumed.
- **The clock**: times after the judged time are treated as that time; no age is below 0.
- **Lag has a floor and trends a dead-band**, so a constant lag of one poll is normal. STOP, STALL and BLOCKED need only
  one message that waits too long.
- **Worst wins** over queues, topics and groups. A group's level is that of its worst status; it is the exit code of a
  check: 0 OK, 1 WARN, 2 ERR, 3 UNKNOWN.
"""


_HISTORY = """\

## In a report

A report judges each sample at the sample's own moment, by the samples since `window_ms` before its own window. At the
window's end a queue whose last sample is older than `stale_ms` is UNKNOWN, unless it is DATA_LOSS, AHEAD or REWIND; a
queue that left is LEFT, whose level is OK.

Samples around a step of the node's clock are left out: from `stale_ms` before it until `window_ms` after a step
forward, or until the clock is `stale_ms` past where it had been before a step back. Later samples lose older message
times.

- **Incident**: a stretch of samples of one queue whose level is not OK. It has the worst status, the greatest lag, and
  the greatest time lag or its upper bound. Its cause is the one that held longest while the status was the
  worst, each sample up to the next one; of equal ones the first. It ends with the first sample that is OK, with the
  sample before a gap longer than `stale_ms`, or when the queue left. An incident of INCOMPLETE alone is not shown.
- **In time** is a sample whose time lag, or its upper bound, is within the target; **late** one whose time lag, or its
  lower bound, is above it. Of all others, and of UNKNOWN ones, it is not known.
- **Share of samples**: those in time, of all.
- **Share of messages**: of the messages that a group's position passed, those before which the last sample was in time.
  Lost messages, and those that wait at the end of the window while the last sample is late, count as missed. Skipped
  messages are not counted, nor what was passed with a reset or within a gap.
- **Time over the target**: the time between two samples of which the first is late, of the group's worst queue.
- **Known**: the share of the window of which a sample is in time or late. A sample speaks for the time up to the next
  one; the first also for the time before it, the last for the time after it. Gaps are not known.
"""


def render() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _INTRODUCTION
    yield "## Figures"
    yield ""
    yield "| name | unit | meaning | what to do |"
    yield "| --- | --- | --- | --- |"
    for figure in ALL.values():
        beside = " (beside the topic's other queues)" if figure.name in TOPIC_QUANTITIES else ""
        yield f"| `{figure.name}` | {figure.unit} | {figure.meaning}{beside} | {figure.advice} |"
    yield ""
    yield "Their formulas in the code:"
    yield ""
    yield "| name | formula |"
    yield "| --- | --- |"
    for figure in ALL.values():
        yield f"| `{figure.name}` | `{figure.rule}` |"
    yield ""
    yield "Other names in the formulas, which are not fields of a sample, figures or limits:"
    yield ""
    yield "| name | is |"
    yield "| --- | --- |"
    for name, text in WINDOW_FACTS.items():
        yield f"| `{name}` | {text} |"
    yield ""
    yield "## Statuses"
    yield ""
    yield "Worst first; the first whose condition is true is the status."
    yield ""
    yield "| status | group | meaning | what to do |"
    yield "| --- | --- | --- | --- |"
    for status in STATUSES:
        yield f"| `{status.name}` | {status.level.name} | {status.meaning} | {status.advice} |"
    yield ""
    yield "| status | when |"
    yield "| --- | --- |"
    for status in STATUSES:
        yield f"| `{status.name}` | `{status.rule}` |"
    yield ""
    yield "## Causes"
    yield ""
    yield "At most one; the first whose condition is true. OK, CATCHING_UP, UNKNOWN and INCOMPLETE have no cause."
    yield ""
    yield "| cause | meaning | evidence | what to do |"
    yield "| --- | --- | --- | --- |"
    for cause in CAUSES:
        yield f"| `{cause.name}` | {cause.meaning} | {cause.evidence} | {cause.advice} |"
    yield ""
    yield "| cause | when |"
    yield "| --- | --- |"
    for cause in CAUSES:
        yield f"| `{cause.name}` | `{cause.rule}` |"
    yield ""
    yield "## Waiting messages"
    yield ""
    yield "Timers, delay levels and half messages belong to the node, not to a group; each is judged separately."
    yield ""
    yield "| name | unit | meaning | what to do | formula |"
    yield "| --- | --- | --- | --- | --- |"
    for figure in WAITING.values():
        yield f"| `{figure.name}` | {figure.unit} | {figure.meaning} | {figure.advice} | `{figure.rule}` |"
    yield ""
    yield "| status | level | meaning | what to do | when |"
    yield "| --- | --- | --- | --- | --- |"
    for status in WAITING_STATUSES:
        yield f"| `{status.name}` | {status.level.name} | {status.meaning} | {status.advice} | `{status.rule}` |"
    yield ""
    yield "## Limits"
    yield ""
    yield "| limit | default | meaning |"
    yield "| --- | --- | --- |"
    texts = meanings_of_limits()
    for field in fields(LagLimits):
        value = getattr(LagLimits(), field.name)
        yield f"| `{field.name}` | {'none' if value == NO_LIMIT else f'{value:,}'} | {texts[field.name]} |"
    yield _HISTORY.rstrip("\n")


def meanings_of_limits() -> dict[str, str]:
    """Return what each limit means, from the docstring of `LagLimits`."""
    text = (getdoc(LagLimits) or "").partition("Attributes:")[2]
    return {name: " ".join(words.split()) for name, words in re.findall(r"(?m)^    (\w+): (.+(?:\n {8}.+)*)", text)}
