"""The table of commands, beside `serve` and `version`, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from proxy.cli.commands import (
    access_commands,
    actions_command,
    config_command,
    dlq_commands,
    group_commands,
    limits_command,
    messages_command,
    node_commands,
    offset_commands,
    pull_command,
    reload_command,
    send_command,
    topic_commands,
)
from proxy.cli.demo import demo_command
from proxy.cli.demo.demo_lag_command import lag as demo_lag
from proxy.cli.lag import (
    lag_backlog_command,
    lag_commands,
    lag_compact_command,
    lag_export_command,
    lag_incidents_command,
    lag_objective_command,
    lag_record_command,
    lag_report_command,
    lag_residence_command,
    lag_watch_command,
)
from proxy.cli.store import (
    store_backup_commands,
    store_check_command,
    store_command,
    store_handover_command,
    store_read_commands,
)
from proxy.cli.tls import tls_dev_command
from proxy.cli.waiting import (
    delay_cancel_command,
    delay_commands,
    timer_cancel_command,
    timer_commands,
    transaction_commands,
)

Commands = Mapping[str, Callable[..., int]]
"""Name to function, whose parameters are arguments and options and whose result is the exit code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Folder:
    """Commands below one word.

    Attributes:
        name: The word.
        help: What they are for.
        commands: Those below it.
        meant: The one that is meant when none is named.
        folders: Further words below it.
    """

    name: str
    help: str
    commands: Commands
    meant: str | None = None
    folders: tuple[Folder, ...] = ()


COMMANDS: Commands = {
    "send": send_command.send,
    "pull": pull_command.pull,
    "stats": node_commands.stats,
    "limits": limits_command.limits,
    "reload": reload_command.reload,
}

FOLDERS = (
    Folder(
        name="actions",
        help="List actions and try them; `actions [NAME]` is short for `actions list [NAME]`.",
        meant="list",
        commands={"list": actions_command.list_actions, "try": actions_command.try_actions},
    ),
    Folder(name="config", help="Check configuration files.", commands={"check": config_command.check}),
    Folder(
        name="demo",
        help="Show a running node under load, and check it; `demo [OPTIONS]` is short for `demo events`.",
        meant="events",
        commands={"events": demo_command.events, "lag": demo_lag},
    ),
    Folder(
        name="access",
        help="Create tokens for clients, and explain why an operation is allowed or denied.",
        commands={"explain": access_commands.explain},
        folders=(
            Folder(
                name="token",
                help="Create, list and revoke the tokens that authenticate clients.",
                commands={
                    "create": access_commands.create,
                    "list": access_commands.list_tokens,
                    "revoke": access_commands.revoke,
                },
            ),
        ),
    ),
    Folder(
        name="groups",
        help="Show consumer groups; `groups [GROUP]` is short for `groups show [GROUP]`.",
        meant="show",
        commands={
            "show": node_commands.groups,
            "stuck": group_commands.stuck,
            "retry": group_commands.retry,
            "skip": group_commands.skip,
            "dead-letter": group_commands.dead_letter,
            "pause": group_commands.pause,
            "resume": group_commands.resume,
        },
    ),
    Folder(
        name="lag",
        help="Show how far groups are behind, and why; `lag [GROUP]` is short for `lag show [GROUP]`.",
        meant="show",
        commands={
            "show": lag_commands.show,
            "check": lag_commands.check,
            "explain": lag_commands.explain,
            "export": lag_export_command.export_lag,
            "incidents": lag_incidents_command.incidents_lag,
            "backlog": lag_backlog_command.backlog_lag,
            "compact": lag_compact_command.compact_lag,
            "record": lag_record_command.record_lag,
            "report": lag_report_command.report_lag,
            "residence": lag_residence_command.residence_lag,
            "slo": lag_objective_command.slo,
            "watch": lag_watch_command.watch_lag,
        },
    ),
    Folder(
        name="topics",
        help="Show and change topics; `topics [TOPIC]` is short for `topics show [TOPIC]`.",
        meant="show",
        commands={
            "show": node_commands.topics,
            "create": topic_commands.create,
            "alter": topic_commands.alter,
            "delete": topic_commands.delete,
        },
    ),
    Folder(
        name="offsets",
        help="Show and reset the offsets of groups.",
        commands={"show": offset_commands.show, "reset": offset_commands.reset},
    ),
    Folder(
        name="delays",
        help="Show and cancel messages of the delay levels.",
        commands={
            "list": delay_commands.list_levels,
            "show": delay_commands.show,
            "cancel": delay_cancel_command.cancel,
        },
    ),
    Folder(
        name="dlq",
        help="Show dead letters, and redrive them.",
        commands={
            "list": dlq_commands.list_groups,
            "show": dlq_commands.show,
            "stats": dlq_commands.stats,
            "redrive": dlq_commands.redrive,
        },
    ),
    Folder(
        name="transactions",
        help="Show transactions, and commit or roll them back by hand.",
        commands={
            "list": transaction_commands.list_transactions,
            "show": transaction_commands.show,
            "commit": transaction_commands.commit,
            "rollback": transaction_commands.rollback,
            "resume": transaction_commands.resume,
            "stats": transaction_commands.stats,
        },
    ),
    Folder(
        name="timers",
        help="Show and change timed messages that are not due yet.",
        commands={
            "list": timer_commands.list_timers,
            "show": timer_commands.show,
            "cancel": timer_cancel_command.cancel,
            "reschedule": timer_commands.reschedule,
            "pause": timer_commands.pause,
            "resume": timer_commands.resume,
            "stats": timer_commands.stats,
        },
    ),
    Folder(
        name="messages",
        help="Show and export stored messages.",
        commands={
            "show": messages_command.show,
            "query": messages_command.query,
            "tail": messages_command.tail,
            "export": messages_command.export,
        },
    ),
    Folder(name="tls", help="Create certificates for trying TLS.", commands={"dev": tls_dev_command.dev}),
    Folder(
        name="store",
        help="Inspect, check, back up and restore data directories.",
        commands={
            "broker-conf": store_command.broker_conf,
            "check": store_check_command.check,
            "handover": store_handover_command.handover,
            "stat": store_read_commands.stat,
            "dump": store_read_commands.dump,
            "find": store_read_commands.find,
            "backup": store_backup_commands.backup,
            "restore": store_backup_commands.restore,
        },
    ),
)
