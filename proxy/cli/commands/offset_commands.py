"""`pyddmq offsets show | reset`: where groups stand, and moving them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.admin_client import CHANGE_TIMEOUT_SECONDS, get, post
from proxy.cli.errors import CliError
from proxy.cli.moments import moment_option
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson, StoppedData
from proxy.cli.output import print_json, print_table, print_text
from proxy.operate.moments import moment_text
from proxy.operate.text import amount
from proxy.operate.views.changes import ResetResult
from proxy.operate.views.groups import OffsetsAnswer
from proxy.process.exit_codes import ExitCode

_LIMIT = 10_000


def show(
    *,
    group: Annotated[str | None, typer.Argument(help="Only this group.")] = None,
    data: StoppedData = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show the offsets of groups in every queue."""
    if data is None:
        answer = get(admin, "/api/offsets", OffsetsAnswer, parameters={"limit": _LIMIT, "group": group or None})
    else:
        from proxy.cli.store import stopped_store

        answer = stopped_store.show(data, group)
    if as_json:
        return print_json(answer)
    rows = [
        [
            each.group,
            each.topic,
            str(each.queue),
            str(each.min),
            str(each.committed),
            str(each.finished_above),
            str(each.next),
            str(each.max),
            str(each.lag),
            "" if each.oldest_ms is None else moment_text(each.oldest_ms),
        ]
        for each in answer.offsets
    ]
    columns = [
        "group",
        "topic",
        "queue",
        "first",
        "committed",
        "finished above",
        "next",
        "end",
        "lag",
        "oldest unfinished",
    ]
    return print_table("Offsets", columns, rows, right=(2, 3, 4, 5, 6, 7, 8))


def reset(
    *,
    group: Annotated[str, typer.Argument(help="The group.")],
    topic: Annotated[str, typer.Option("--topic", help="The topic.")],
    queue: Annotated[int | None, typer.Option("--queue", min=0, help="Only this queue.")] = None,
    to_offset: Annotated[int | None, typer.Option("--to-offset", min=0, help="To this offset.")] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="To the first message stored at or after this time: 2026-03-01T04:05:06Z, 2h ago, or ms since 1970.",
        ),
    ] = None,
    earliest: Annotated[bool, typer.Option("--earliest", help="To the oldest stored message.")] = False,
    latest: Annotated[bool, typer.Option("--latest", help="To the end: existing messages are not delivered.")] = False,
    shift_by: Annotated[int | None, typer.Option("--shift-by", help="Move by N offsets; negative moves back.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Apply the reset; without it, only show the effect.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do not wait for messages in flight.")] = False,
    wait: Annotated[
        float, typer.Option("--wait", min=0, max=300, help="Seconds to wait for messages in flight.")
    ] = 30.0,
    data: StoppedData = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Show what a reset of a group's offsets would skip and repeat; with --yes, reset them."""
    targets: dict[str, Any] = {
        "toOffset": to_offset,
        "toTimeMs": None if to_time is None else moment_option(to_time, option="--to-time", clock=SystemClock()),
        "to": "earliest" if earliest else "latest" if latest else None,
        "shiftBy": shift_by,
    }
    given = {name: value for name, value in targets.items() if value is not None}
    if len(given) != 1 or (earliest and latest):
        text = "pass exactly one of --to-offset, --to-time, --earliest, --latest, --shift-by"
        raise CliError(text, ExitCode.USAGE)
    if data is None:
        body: dict[str, Any] = {"group": group, "topic": topic, "queue": queue, **given}
        body |= {"dryRun": not yes, "force": force, "waitSeconds": wait}
        answer = post(admin, "/api/offsets/reset", body, ResetResult, timeout_seconds=wait + CHANGE_TIMEOUT_SECONDS)
    else:
        from proxy.cli.store import stopped_store
        from upstream.operate.positions import PositionTarget

        target = PositionTarget(to_offset, targets["toTimeMs"], shift_by, targets["to"])
        answer = stopped_store.reset(data, group, topic, queue, target, dry_run=not yes)
    if as_json:
        return print_json(answer)
    _print_moves(answer)
    return ExitCode.OK


def _print_moves(answer: ResetResult) -> None:
    rows = [
        [
            str(each.queue),
            str(each.start),
            str(each.to),
            str(each.skipped),
            str(each.repeated),
            str(each.finished_above_forgotten),
            str(each.in_flight),
        ]
        for each in answer.queues
    ]
    columns = ["queue", "from", "to", "skipped", "repeated", "of them finished above", "in flight"]
    print_table(f"Group {answer.group} on topic {answer.topic}", columns, rows, right=tuple(range(7)))
    skipped = amount(sum(each.skipped for each in answer.queues), "unfinished message")
    repeated = amount(sum(each.repeated for each in answer.queues), "finished message")
    if answer.changed:
        print_text(f"done: {skipped} skipped, {repeated} delivered again")
    elif answer.dry_run:
        print_text(f"nothing was changed: {skipped} would be skipped, {repeated} delivered again; pass --yes to apply")
    else:
        print_text("nothing to do: the group is already at these offsets")
