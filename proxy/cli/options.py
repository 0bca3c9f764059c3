"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ProducerAddress = Annotated[
    str,
    typer.Option("--producer", metavar="HOST:PORT", envvar="PYDDMQ_PRODUCER", help="The node's producer port."),
]
ConsumerAddress = Annotated[
    str,
    typer.Option("--consumer", metavar="HOST:PORT", envvar="PYDDMQ_CONSUMER", help="The node's consumer port."),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        "--token-file",
        metavar="FILE",
        envvar="PYDDMQ_TOKEN_FILE",
        help="File with the token that authenticates this client. The default is PYDDMQ_TOKEN.",
        readable=False,
    ),
]
AdminAddress = Annotated[
    str,
    typer.Option("--admin", metavar="HOST:PORT", envvar="PYDDMQ_ADMIN", help="The node's admin port."),
]
StoppedData = Annotated[
    Path | None,
    typer.Option(
        "--data", metavar="DIR", help="Read a data directory that no node has open, instead of a node.", readable=False
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON in a stable shape (docs/cli.md).")]

PRODUCER_DEFAULT = "127.0.0.1:9613"
CONSUMER_DEFAULT = "127.0.0.1:9713"
ADMIN_DEFAULT = "127.0.0.1:9813"
