"""`pyddmq access`: tokens by which clients say who they are, and why something is allowed or not."""

from __future__ import annotations

import fcntl
import os
import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker.runtime.seams import SystemClock
from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line
from proxy.operate.moments import moment_text
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from conf.sections.access_files import StoredToken

DAY_MS = 86_400_000
DAYS_MAX = 3650

TokensFile = Annotated[Path, typer.Option("--file", "-f", help="The file named by `access.tokens`.", readable=False)]


def create(
    *,
    file: TokensFile,
    principal: Annotated[str, typer.Option("--principal", "-p", help="The principal that the token authenticates.")],
    days: Annotated[int, typer.Option(min=1, max=DAYS_MAX, help="How long the token is valid.")] = 90,
    as_json: AsJson = False,
) -> int:
    """Create a token and print it; only its hash is stored. Nodes that read the file accept it within a second."""
    from conf.sections.access import is_principal
    from conf.sections.access_files import StoredToken
    from proxy.access.tokens import ID_BYTES, SECRET_BYTES, made

    if not is_principal(principal):
        text = (
            f"{principal!r} is not a valid principal; use up to 128 letters, digits, `_ . - @ : / + =`, and not "
            "`anonymous`"
        )
        raise CliError(text, ExitCode.USAGE)
    name, text, digest = made(secrets.token_bytes(ID_BYTES + SECRET_BYTES))
    now_ms = SystemClock().wall_ms()
    token = StoredToken(
        id=name, digest=digest, principal=principal, created_ms=now_ms, expires_ms=now_ms + days * DAY_MS
    )
    with _changing(file, create=True) as tokens:
        tokens[name] = token
    if as_json:
        return print_json({**_fields(token), "token": text})
    return print_line(text)


def list_tokens(*, file: TokensFile, as_json: AsJson = False) -> int:
    """List the tokens of a file: ids, principals, and when they expire."""
    tokens = sorted(_read(file).values(), key=lambda each: (each.principal, each.created_ms))
    if as_json:
        return print_json([_fields(each) for each in tokens])
    now_ms = SystemClock().wall_ms()
    for each in tokens:
        state = "expired" if each.expires_ms <= now_ms else "until"
        print_line(f"{each.id}  {each.principal}  {state} {moment_text(each.expires_ms)}")
    return ExitCode.OK


def revoke(
    *,
    file: TokensFile,
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="ID", help="Ids of tokens, from `pyddmq access token list`.")
    ] = None,
    principal: Annotated[str | None, typer.Option("--principal", "-p", help="All tokens of this principal.")] = None,
    as_json: AsJson = False,
) -> int:
    """Revoke tokens; nodes that read the file close their connections within a second."""
    if bool(ids) == (principal is not None):
        raise CliError("pass ids, or --principal for all tokens of one principal", ExitCode.USAGE)
    with _changing(file) as tokens:
        for each in ids or ():
            if each not in tokens:
                raise CliError(
                    f"{file} has no token {each}; `pyddmq access token list` shows its tokens", ExitCode.NOT_FOUND
                )
        gone = [each.id for each in tokens.values() if each.id in (ids or ()) or each.principal == principal]
        if not gone:
            raise CliError(f"{file} has no token of {principal}", ExitCode.NOT_FOUND)
        for each in gone:
            del tokens[each]
    if as_json:
        print_json({"revoked": gone})
    else:
        for each in gone:
            print_line(f"revoked {each}")
    return ExitCode.OK


def explain(
    *,
    file: Annotated[Path, typer.Argument(help="Configuration file.", readable=False)],
    principal: Annotated[str, typer.Argument(help="The principal; `anonymous` is a client without a principal.")],
    action: Annotated[str, typer.Argument(help="produce, consume, transact, view, operate, readBodies or administer.")],
    resource: Annotated[str, typer.Argument(help="A topic, group or producer group; for administer: node.")],
    as_json: AsJson = False,
) -> int:
    """Show whether a principal is allowed an operation, and which line of the configuration decides. Exit 1 if not."""
    from actions.registry import Registry
    from conf.loader import load
    from conf.problems import ConfigError
    from conf.yaml_tree import line_of
    from proxy.access.rules import Permission, Rules

    try:
        loaded = load(str(file), actions=Registry())
    except ConfigError as error:
        raise CliError(str(error), ExitCode.CONFIG_INVALID) from error
    if action not in list(Permission):
        raise CliError(f"{action} is not a valid action; use one of {', '.join(Permission)}", ExitCode.USAGE)
    access = loaded.config.access
    if access is None:
        reported: dict[str, Any] = {
            "allowed": True,
            "line": None,
            "text": "the configuration has no `access` section: every client may do everything",
        }
    else:
        rules = Rules(access)
        decision = rules.decide(principal, Permission(action), resource)
        if decision.rule is not None:
            lines = [line_of(loaded.tree, ("access", "rules", decision.rule))]
        else:
            lines = [line_of(loaded.tree, ("access", "rules", at)) for at in rules.naming(principal)]
        reported = {
            "allowed": decision.allowed,
            "line": lines[0] if decision.allowed else None,
            "text": decision.text,
            **({} if decision.allowed else {"naming": lines}),
        }
    if as_json:
        print_json({"principal": principal, "action": action, "resource": resource, **reported})
    else:
        place = f"{file}:{reported['line']}: " if reported["line"] else f"{file}: "
        print_line(f"{'allowed' if reported['allowed'] else 'denied'}: {place}{reported['text']}")
        for line in reported.get("naming") or ():
            print_line(f"  {file}:{line} names {principal}")
    return ExitCode.OK if reported["allowed"] else ExitCode.CHECK_FAILED


def _fields(token: StoredToken) -> dict[str, str | int]:
    return {
        "id": token.id,
        "principal": token.principal,
        "createdMs": token.created_ms,
        "expiresMs": token.expires_ms,
    }


def _read(file: Path) -> dict[str, StoredToken]:
    from conf.sections.access_files import AccessUnreadable, tokens_of

    try:
        return tokens_of(file.read_bytes(), str(file))
    except AccessUnreadable as error:
        raise CliError(error.text, ExitCode.CONFIG_INVALID) from error
    except OSError as error:
        from conf.file_faults import file_fault

        raise CliError(f"{file} cannot be read ({file_fault(error, file)})", ExitCode.CONFIG_INVALID) from error


@contextmanager
def _changing(file: Path, *, create: bool = False) -> Iterator[dict[str, StoredToken]]:
    """Read the tokens, and put a file of those that there are then in its place; one change at a time."""
    from conf.file_faults import file_fault
    from conf.sections.access_files import text_of

    file = file.resolve()
    try:
        folder = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        text = f"{file.parent} cannot be opened ({file_fault(error)}); create the folder first"
        raise CliError(text, ExitCode.CONFIG_INVALID) from error
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        tokens = {} if create and not file.exists() else _read(file)
        yield tokens
        try:
            _put(file, text_of(tokens), folder)
        except OSError as error:
            reason = file_fault(error, file, to="write")
            raise CliError(f"{file} cannot be written ({reason})", ExitCode.CONFIG_INVALID) from error
    finally:
        os.close(folder)


def _put(file: Path, text: str, folder: int) -> None:
    """Replace a file whole; its owner alone reads it, and who owned the one before owns this one."""
    descriptor, spare = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            opened.write(text)
            opened.flush()
            if file.exists():
                status = file.stat()
                os.fchmod(opened.fileno(), status.st_mode & 0o660)
                if os.geteuid() == 0:
                    os.fchown(opened.fileno(), status.st_uid, status.st_gid)
            os.fsync(opened.fileno())
        os.replace(spare, file)
        os.fsync(folder)
    except BaseException:
        Path(spare).unlink(missing_ok=True)
        raise
