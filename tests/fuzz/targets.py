"""The targets by name, and where their inputs are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fuzz import access, ack_journal, admin, configuration, directory, expressions, frames, pushes, store_files

Target = Callable[[bytes], None]

TARGETS: dict[str, Target] = {
    "consumer": frames.consumer,
    "producer": frames.producer,
    "log": store_files.log,
    "queue": store_files.queue,
    "index": store_files.index,
    "state": store_files.state,
    "acks": ack_journal.acks,
    "directory": directory.directory,
    "yaml": configuration.yaml,
    "reply": pushes.reply,
    "callback": pushes.callback_url,
    "expression": expressions.expression,
    "transform": expressions.transform,
    "authenticate": access.authenticate,
    "tokens": access.tokens,
    "jwt": access.jwt,
    "sign_in": admin.sign_in,
}

CORPUS = Path(__file__).parent / "corpus"
"""Per target: seeds to start from, and what reached new code without being long."""
FINDINGS = Path(__file__).parent / "findings"
"""Per target: inputs that broke a promise once; each stays for good."""


def kept(name: str) -> Iterator[Path]:
    """Yield every kept input of a target."""
    for folder in (CORPUS / name, FINDINGS / name):
        if folder.is_dir():
            yield from sorted(path for path in folder.iterdir() if path.is_file())
