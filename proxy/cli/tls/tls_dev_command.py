"""`pyddmq tls dev`: a CA and certificates for trying TLS."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from proxy.cli.errors import CliError
from proxy.cli.options import AsJson
from proxy.cli.output import print_json, print_line
from proxy.process.exit_codes import ExitCode

_NAMES = ("localhost", "127.0.0.1", "::1")


def dev(
    *,
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder for the files; created if missing.", readable=False)
    ],
    name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A further DNS name or address of the node; repeatable."),
    ] = None,
    client: Annotated[
        str, typer.Option(metavar="NAME", help="Common name of the client's certificate.")
    ] = "dev-client",
    days: Annotated[int, typer.Option(min=1, max=3650, help="Validity of the certificates.")] = 90,
    force: Annotated[bool, typer.Option("--force", help="Replace existing files.")] = False,
    as_json: AsJson = False,
) -> int:
    """Create a CA and certificates for trying TLS. Not for production: the CA's key is in the same folder."""
    try:
        from proxy.cli.tls.dev_certificates import FILES, make
    except ImportError as error:
        text = "`pyddmq tls dev` needs the package cryptography: pip install 'pyddmq[server]'"
        raise CliError(text, ExitCode.USAGE) from error
    there = [each for each in FILES if (folder / each).exists()]
    if there and not force:
        text = f"{folder / there[0]} exists; pass another folder, or replace its files with --force"
        raise CliError(text, ExitCode.USAGE)
    try:
        make(folder, names=(*_NAMES, *(name or ())), client=client, days=days)
    except (OSError, ValueError) as error:
        raise CliError(f"cannot make certificates in {folder}: {error}", ExitCode.USAGE) from error
    path = folder.absolute()
    if as_json:
        return print_json({"folder": str(path), "files": list(FILES), "days": days, "client": client})
    print_line(
        f"Created a CA, a certificate for the node and one for client {client!r}, valid for {days} days, in {path}."
    )
    print_line("Not for production: anyone who has ca.key can impersonate any client. In the node's configuration:")
    print_line(
        f"\ntls:\n  certificate: {path}/node.crt\n  key: {path}/node.key\n  clientCertificates: required    "
        f"  # or none, optional\n  clientCa: {path}/ca.crt\n  producer: {{port: 9623}}\n  consumer: {{port: "
        "9723}\n"
    )
    print_line("For the client:")
    return print_line(
        "\n"
        f"export PYDDMQ_TLS_CA={path}/ca.crt\n"
        f"export PYDDMQ_TLS_CERTIFICATE={path}/client.crt PYDDMQ_TLS_KEY={path}/client.key\n"
        "pyddmq send --producer tls://127.0.0.1:9623 TOPIC hello"
    )
