"""How a command speaks TLS: options in front of the command, or the environment; for addresses by TLS alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from proxy.cli.errors import CliError
from proxy.process.exit_codes import ExitCode

if TYPE_CHECKING:
    from pyddmq import Tls

SCHEMES = ("tls://", "https://")

TlsCa = Annotated[
    str | None,
    typer.Option(
        "--tls-ca",
        metavar="FILE",
        envvar="PYDDMQ_TLS_CA",
        help="For addresses as tls://HOST:PORT: the trusted CAs (PEM); the default is the system's.",
    ),
]
TlsCertificate = Annotated[
    str | None,
    typer.Option(
        "--tls-certificate", metavar="FILE", envvar="PYDDMQ_TLS_CERTIFICATE", help="Certificate to show to the node."
    ),
]
TlsKey = Annotated[
    str | None,
    typer.Option(
        "--tls-key", metavar="FILE", envvar="PYDDMQ_TLS_KEY", help="Key of the certificate, if in a separate file."
    ),
]
TlsName = Annotated[
    str | None,
    typer.Option(
        "--tls-name",
        metavar="NAME",
        envvar="PYDDMQ_TLS_NAME",
        help="Name that the node's certificate must have; the default is the host of the address.",
    ),
]

_chosen: dict[str, str | None] = {}
"""What was in front of the command: one for the process, which runs one command."""


def choose(**files: str | None) -> None:
    """Keep it for the command that follows: arguments of `Tls`."""
    _chosen.update(files)


def tls_for(address: str) -> Tls | None:
    """Return how an address is spoken to; None: without TLS.

    Raises:
        CliError: A file cannot be used.
    """
    if not address.startswith(SCHEMES):
        return None
    # Most commands speak to a node without it, and some to none.
    from pyddmq import ClientMisuse, Tls

    tls = Tls(**_chosen)
    try:
        tls.context()
    except ClientMisuse as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    return tls
