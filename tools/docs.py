"""Writes the pages that are made from the code: `make docs`. Tests of each generator keep page and code equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from tools import (
    api_doc,
    cli_doc,
    codes_doc,
    configuration_doc,
    findings_doc,
    log_events_doc,
    metrics_doc,
    rules_doc,
    shapes_doc,
    tried_doc,
)

PAGES: Mapping[str, Callable[[], str]] = MappingProxyType(
    {
        "admin-shapes": shapes_doc.render,
        "api": api_doc.render,
        "codes": codes_doc.render,
        "commands": cli_doc.render,
        "configuration": configuration_doc.render,
        "findings": findings_doc.render,
        "lag-rules": rules_doc.render,
        "log-events": log_events_doc.page,
        "metrics": metrics_doc.page,
        "tried": tried_doc.render,
    }
)
"""Names of the pages in docs/, with what makes each."""


def write(folder: Path) -> None:
    """Write all pages into a folder; none of them if one cannot be made."""
    made = {name: page() for name, page in PAGES.items()}
    for name, text in made.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(Path(__file__).parents[1] / "docs")
