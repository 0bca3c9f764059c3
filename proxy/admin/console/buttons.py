"""Buttons: each calls a route of the API that the CLI calls too, and names that command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from broker.views import View
from proxy.access.rules import EVERYTHING
from proxy.admin.console.calls import PageCall
from proxy.operate.attention.kinds import command
from proxy.operate.views.findings import Finding

Value = str | int | bool | None | Sequence[Mapping[str, str]]


class Button(View, frozen=True, kw_only=True):
    """One change that the page offers.

    Attributes:
        label: What the button says.
        path: Route of the API.
        body: The JSON body.
        command: The command that does the same.
        text: What the change does, a sentence; it is shown before the change is made.
        dry_run: Whether the route shows first what the body would change (`dryRun`).
        tone: `quiet`, or `bad` for a change that skips messages.
        fields: Fields of the body that the operator fills in, by name: a label, a type of input, a hint.
    """

    label: str
    path: str
    body: Mapping[str, Value]
    command: str
    text: str
    dry_run: bool = False
    tone: str = "quiet"
    fields: Sequence[Mapping[str, str]] = ()


_HEADS = {
    "retry": ("Retry", "The message is redelivered at the next pull. The messages behind it keep waiting.", "quiet"),
    "skip": ("Skip", "The message counts as finished and is not delivered again. It makes no dead letter.", "bad"),
    "dead-letter": ("Dead-letter", "The message becomes a dead letter. The next message of its key continues.", "bad"),
}
_OF_CONSUMERS = ("retry_storm", "dead_letters", "timeouts")
"""Findings that a pause helps against."""
_HEAD_KINDS = ("poison", "stopped", "key_held")


_PAGES = {
    "undecided": ("Transactions", "/waiting?kind=transactions"),
    **dict.fromkeys(("timers_late", "timers_refused", "timers_paused", "kafka_waiting"), ("Waiting", "/waiting")),
    **dict.fromkeys(("client_limited", "connections_refused"), ("Clients", "/clients")),
    **dict.fromkeys(("reload_refused", "config_missing"), ("Configuration", "/configuration")),
}
"""By finding, the page that shows more of it; of the others without a group, that of the node."""


def page_of(finding: Finding) -> tuple[str, str]:
    """Return name and address of the page that shows most of a finding."""
    if finding.group is not None:
        return f"Open {finding.group}", f"/group?{urlencode({'group': finding.group})}"
    return _PAGES.get(finding.finding, ("Node", "/node"))


def pause(group: str, topic: str | None = None) -> Button:
    """Return the button that pauses a group, or one topic of it."""
    return _of_group("pause", "Pause", group, topic, "Deliveries stop. Messages in flight may still be answered.")


def resume(group: str, topic: str | None = None) -> Button:
    """Return the button that resumes what is paused."""
    return _of_group("resume", "Resume", group, topic, "Deliveries continue.")


def _of_group(what: str, label: str, group: str, topic: str | None, text: str) -> Button:
    option = () if topic is None else ("--topic", topic)
    body = {"group": group} if topic is None else {"group": group, "topic": topic}
    return Button(
        label=label, path=f"/api/groups/{what}", body=body, command=command("groups", what, group, *option), text=text
    )


def heads(group: str, topic: str, queue: int, offset: int, *, held: bool = False) -> list[Button]:
    """Return the buttons that end or retry a stuck message; `held`: a client or an action has it."""
    force = ("--force",) if held else ()
    place = ("--topic", topic, "--queue", str(queue), "--offset", str(offset))
    risk = " A client or an action holds the message, and may still be processing it." if held else ""
    return [
        Button(
            label=label,
            path=f"/api/groups/{what}",
            body={"group": group, "topic": topic, "queue": queue, "offset": offset, "force": held},
            command=command("groups", what, group, *place, *force),
            text=text + risk,
            tone=tone,
        )
        for what, (label, text, tone) in _HEADS.items()
    ]


def reset(group: str, topic: str) -> list[Button]:
    """Return the buttons that move a group on a topic: to the end, to a time, to an offset."""
    said = command("offsets", "reset", group, "--topic", topic)
    body = {"group": group, "topic": topic}
    time = {
        "name": "toTimeMs",
        "label": "Time (this browser's time zone)",
        "type": "datetime-local",
        "option": "--to-time",
    }
    offset = {"name": "toOffset", "label": "Offset, in each queue", "type": "number", "option": "--to-offset"}
    ways: Sequence[tuple[str, str, Sequence[Mapping[str, str]]]] = (
        ("a time", "Deliveries continue at the first message stored at or after this time.", [time]),
        ("an offset", "Deliveries continue at this offset.", [offset]),
        ("the end", "Existing messages are not delivered.", []),
    )
    return [
        Button(
            label=f"Reset to {where}",
            path="/api/offsets/reset",
            body=body if fields else {**body, "to": "latest"},
            command=said if fields else f"{said} --latest",
            text=text,
            dry_run=True,
            tone="bad",
            fields=fields,
        )
        for where, text, fields in ways
    ]


def reload() -> Button:
    """Return the button that reads the configuration again."""
    return Button(
        label="Reload",
        path="/api/reload",
        body={},
        command=command("reload"),
        text="The node reads its configuration file again and applies it as a whole, or changes nothing.",
        dry_run=True,
    )


_RESUME_TIMERS = Button(
    label="Resume timers",
    path="/api/timers/resume",
    body={"stage": "all"},
    command=command("timers", "resume", "all"),
    text="All stages of the timers continue. Overdue messages are delivered at once.",
)


def of_finding(call: PageCall, finding: Finding) -> list[Button]:
    """Return what a viewer may do about a finding."""
    group, topic = finding.group, finding.topic
    if finding.finding in ("reload_refused", "config_missing"):
        return [reload()] if call.may_administer() else []
    if finding.finding == "timers_paused" and call.may_operate(EVERYTHING):
        return [_RESUME_TIMERS]
    if group is None or topic is None or not call.may_operate(group):
        return []
    if finding.finding == "paused":
        return [resume(group, topic)]
    if finding.finding in _OF_CONSUMERS:
        return [pause(group, topic)]
    if finding.finding in _HEAD_KINDS and finding.queue is not None and finding.offset is not None:
        return heads(group, topic, finding.queue, finding.offset, held=finding.finding == "key_held")
    return []
