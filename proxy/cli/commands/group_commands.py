"""`pyddmq groups stuck | retry | skip | dead-letter | pause | resume`: an operator's hand on groups."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from proxy.cli.admin_client import get, post
from proxy.cli.errors import CliError
from proxy.cli.findings import print_findings
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import print_json, print_table, print_text
from proxy.operate.text import age, amount, printable
from proxy.operate.views.changes import HeadResult, PauseResult
from proxy.operate.views.groups import StuckAnswer
from proxy.process.exit_codes import ExitCode
from upstream.views import StuckMessage, holder_text, whereabouts

_LIMIT = 10_000

Group = Annotated[str, typer.Argument(help="The group.")]
OneTopic = Annotated[str | None, typer.Option("--topic", help="Only this topic of the group.")]
Topic = Annotated[str | None, typer.Option("--topic", help="Topic of the message.")]
Key = Annotated[str | None, typer.Option("--key", help="Order key; selects the first unfinished message of this key.")]
Queue = Annotated[int | None, typer.Option("--queue", min=0, help="Queue of the message.")]
Offset = Annotated[int | None, typer.Option("--offset", min=0, help="Offset of the message.")]
Force = Annotated[
    bool, typer.Option("--force", help="Even if a client or action holds the message and may still be processing it.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]

HeadCommand = Callable[..., int]


def stuck(
    *,
    group: Annotated[str | None, typer.Argument(help="Only this group.")] = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List messages that block others of their key, or have failed and are unfinished; the oldest first."""
    answer = _stuck(admin, group)
    if as_json:
        return print_json(answer)
    print_findings(answer.findings)
    if not answer.stuck:
        return print_text("no message is stuck")
    now_ms = answer.now_ms
    rows = [
        [
            each.group,
            each.topic,
            each.key if each.key is not None else "(unordered)",
            f"{each.queue}",
            f"{each.offset}",
            each.id or "(unreadable)",
            f"held by {holder_text(each.holder, each.holder_client)}" if each.holder else whereabouts(each.state),
            f"{each.attempts}",
            age((now_ms - each.since_ms) / 1000),
            "" if each.due_ms is None else f"in {age((each.due_ms - now_ms) / 1000)}",
            f"{each.waiting}",
            each.reason or "",
        ]
        for each in answer.stuck
    ]
    columns = [
        "group",
        "topic",
        "key",
        "queue",
        "offset",
        "id",
        "where",
        "attempts",
        "since",
        "next try",
        "behind it",
        "last failure",
    ]
    print_table(f"{amount(answer.stuck_total, 'stuck message')}", columns, rows, right=(3, 4, 7, 8, 10))
    return print_text("to finish one: pyddmq groups retry | skip | dead-letter GROUP --topic T --queue Q --offset N")


def _stuck(admin: str, group: str | None) -> StuckAnswer:
    return get(admin, "/api/groups/stuck", StuckAnswer, parameters={"limit": _LIMIT, "group": group or None})


def _on_one(action: str, summary: str) -> HeadCommand:
    """Make the command that does something to one message, named by its place or its key."""

    def act(
        *,
        group: Group,
        topic: Topic = None,
        key: Key = None,
        queue: Queue = None,
        offset: Offset = None,
        force: Force = False,
        yes: Yes = False,
        admin: AdminAddress = ADMIN_DEFAULT,
        as_json: AsJson = False,
    ) -> int:
        return _act(action, admin, _message(admin, group, topic, key, queue, offset, yes), force=force, as_json=as_json)

    act.__doc__ = summary
    return act


retry = _on_one("retry", "Start the next attempt of a stuck message now; earlier attempts stay counted.")
skip = _on_one("skip", "Finish a message without delivery and without a dead letter; it is counted as skipped.")
dead_letter = _on_one("dead-letter", "Move a message to the group's dead letters now; its key continues.")


def _message(  # noqa: PLR0917 - the options of three commands, in their order
    admin: str, group: str, topic: str | None, key: str | None, queue: int | None, offset: int | None, yes: bool
) -> dict[str, Any]:
    """Return the message that the options name; one named by its key is shown and confirmed."""
    if queue is not None and offset is not None:
        if topic is None:
            raise CliError("pass --topic with the topic of the message", ExitCode.USAGE)
        message = {"group": group, "topic": topic, "queue": queue, "offset": offset}
        return message if key is None else {**message, "key": key}
    if key is None or queue is not None or offset is not None:
        text = "pass --key, or --queue and --offset; `pyddmq groups stuck` lists the stuck messages"
        raise CliError(text, ExitCode.USAGE)
    found = [each for each in _stuck(admin, group).stuck if each.key == key and topic in (None, each.topic)]
    if not found:
        text = (
            f"no message of key {key!r} is stuck in group {group}; `pyddmq groups stuck {group}` lists the "
            "stuck messages"
        )
        raise CliError(text, ExitCode.NOT_FOUND)
    if len(found) > 1:
        topics = ", ".join(each.topic for each in found)
        raise CliError(f"key {key!r} is stuck in several topics: {topics}; select one with --topic", ExitCode.USAGE)
    [head] = found
    if not yes:
        _confirm(head)
    return {"group": head.group, "topic": head.topic, "queue": head.queue, "offset": head.offset, "key": head.key}


def _confirm(head: StuckMessage) -> None:
    """Show a message, on stderr, and continue when the answer is yes."""
    where = f"held by {holder_text(head.holder, head.holder_client)}" if head.holder else whereabouts(head.state)
    text = (
        f"topic {head.topic}, queue {head.queue}, offset {head.offset}, key {head.key}, id {head.id}: "
        f"{where}, {amount(head.attempts, 'delivery')}, {amount(head.waiting or 0, 'message')} behind it"
    )
    if not sys.stdin.isatty():
        raise CliError(f"{printable(text)}. Pass --yes, or --queue and --offset", ExitCode.USAGE)
    if not typer.confirm(f"{printable(text)}. This message?", err=True):
        raise CliError("nothing was changed", ExitCode.CHECK_FAILED)


def _act(action: str, admin: str, message: dict[str, Any], *, force: bool, as_json: bool) -> int:
    answer = post(admin, f"/api/groups/{action}", {**message, "force": force}, HeadResult)
    if as_json:
        return print_json(answer)
    key = "" if answer.key is None else f" (key {printable(answer.key)})"
    return print_text(f"{answer.topic}, queue {answer.queue}, offset {answer.offset}{key}: {answer.text}")


def pause(*, group: Group, topic: OneTopic = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False) -> int:
    """Stop deliveries of a group until `resume`; messages in flight may still be acknowledged. Survives restarts."""
    return _pause("pause", admin, group, topic, as_json=as_json)


def resume(
    *, group: Group, topic: OneTopic = None, admin: AdminAddress = ADMIN_DEFAULT, as_json: AsJson = False
) -> int:
    """Deliver messages of a paused group again."""
    return _pause("resume", admin, group, topic, as_json=as_json)


def _pause(action: str, admin: str, group: str, topic: str | None, *, as_json: bool) -> int:
    answer = post(admin, f"/api/groups/{action}", {"group": group, "topic": topic}, PauseResult)
    if as_json:
        return print_json(answer)
    before = "" if answer.changed else "nothing changed: "
    paused = ", ".join(answer.paused_topics)
    return print_text(f"{before}group {group}: " + (f"paused: {paused}" if paused else "nothing is paused"))
