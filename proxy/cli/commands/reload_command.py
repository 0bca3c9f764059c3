"""`pyddmq reload`: have a running node read its configuration again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.cli.admin_client import post
from proxy.cli.errors import CliError
from proxy.cli.options import ADMIN_DEFAULT, AdminAddress, AsJson
from proxy.cli.output import print_json, print_line
from proxy.node.views import ReloadResult
from proxy.operate.text import printable
from proxy.process.exit_codes import ExitCode


def reload(
    *,
    accept_loss: Annotated[
        bool,
        typer.Option("--accept-loss", help="Apply lower retention limits even if they delete unfinished messages."),
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would change, or why it would be refused.")
    ] = False,
    config: Annotated[
        Path | None,
        typer.Option("--config", readable=False, help="With --dry-run: try this file in place of the node's own."),
    ] = None,
    admin: AdminAddress = ADMIN_DEFAULT,
    as_json: AsJson = False,
) -> int:
    """Make a node read its configuration file again, as a whole; shows what changed, or why nothing did."""
    body: dict[str, object] = {"acceptLoss": accept_loss, **({"dryRun": True} if dry_run else {})}
    if config is not None:
        if not dry_run:
            raise CliError("--config needs --dry-run: a node reloads its own file", ExitCode.USAGE)
        body |= {"text": _text_of(config), "file": str(config)}
    answer = post(admin, "/api/reload", body, ReloadResult, also=(409,))
    code = ExitCode.OK if answer.accepted else ExitCode.REFUSED
    if as_json:
        print_json(answer)
        return code
    for warning in answer.warnings:
        print_line(f"warning: {printable(warning)}")
    if not answer.accepted:
        print_line("would be refused:" if dry_run else "refused; the running configuration stays in force:")
        for problem in answer.problems:
            print_line(f"  {printable(problem)}")
        return code
    if not answer.changes:
        print_line("nothing would change" if dry_run else "nothing changed")
    elif dry_run:
        print_line("would change:")
    for change in answer.changes:
        print_line(printable(change))
    return code


def _text_of(config: Path) -> str:
    try:
        return config.read_text(encoding="utf-8-sig")
    except OSError as error:
        from conf.file_faults import file_fault

        raise CliError(f"cannot read {config}: {file_fault(error, config)}", ExitCode.USAGE) from error
    except UnicodeDecodeError as error:
        raise CliError(f"cannot read {config}: it is not UTF-8", ExitCode.USAGE) from error
