"""`pyddmq limits`: which clients have limits, and who is being held to one."""

from __future__ import annotations

from typing import Annotated

import typer

from proxy.cli.admin_client import get
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import print_json, print_table, print_text
from proxy.operate.text import age
from proxy.operate.views.limits import LimitsAnswer
from proxy.process.exit_codes import ExitCode

_LIMIT = 10_000


def limits(
    *,
    client: Annotated[str | None, typer.Argument(help="Only this principal or address.")] = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """List clients that have limits; first those that were limited within the last minute."""
    answer = get(admin, "/api/limits", LimitsAnswer, parameters={"limit": _LIMIT, "client": client or None})
    if as_json:
        return print_json(answer)
    held = [
        [
            each.client,
            hold.limit,
            hold.text,
            age((answer.now_ms - hold.since_ms) / 1000),
            str(hold.waited),
            str(hold.refused),
        ]
        for each in answer.clients
        for hold in each.held
    ]
    if held:
        columns = ["client", "limit", "allows", "limited for", "times limited", "refused"]
        print_table("Limited clients", columns, held, right=(3, 4, 5))
    else:
        print_text("No client was limited within the last minute.")
    rows = [
        [
            each.client,
            each.told_by,
            str(each.connections),
            str(each.parked_pulls),
            "" if each.open_transactions is None else str(each.open_transactions),
            "" if each.pending_timers is None else str(each.pending_timers),
        ]
        for each in answer.clients
    ]
    if rows:
        columns = ["client", "matched by", "connections", "waiting pulls", "transactions", "timers"]
        print_table("Clients with limits", columns, rows, right=(2, 3, 4, 5))
    return ExitCode.OK
