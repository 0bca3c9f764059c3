"""What the pages tell a newcomer to type: each `pyddmq` line of theirs, in order, at a node of the sample file."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from proxy.cli.app import run
from proxy.process.exit_codes import ExitCode
from tests.acceptance.conftest import StartNode

ROOT = Path(__file__).resolve().parents[2]
PAGES = (
    "README.md",
    "docs/cli.md",
    "docs/delays.md",
    "docs/timers.md",
    "docs/loops.md",
    "docs/operations.md",
    "docs/lag.md",
)
FOLLOWED = ("docs/tutorial.md", "docs/howto/")
"""`test_pages` does all that these say."""
OWN_TESTS = ("serve", "demo")
"""They run long, and `test_cli`, `test_demo` and others run them."""


def documented(page: str) -> Iterator[list[str]]:
    """The commands in a page's shell blocks, as a shell would split them."""
    for block in re.findall(r"```sh\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            parts = [shlex.split(part) for part in line.partition("#")[0].split("; ")]
            yield from (words for words in parts if words[:1] == ["pyddmq"])


def test_pages_have_commands() -> None:
    """The search for them finds what stands there, comments and second commands of a line apart."""
    found = [" ".join(each) for page in PAGES for each in documented(page)]
    assert len(found) > 15
    assert "pyddmq groups" in found
    assert not [each for each in found if "#" in each]


def test_each_page_with_commands_is_run() -> None:
    """A page that is new, or has its first command, is entered in PAGES, or is one that is followed as a whole."""
    pages = {"README.md", *(file.relative_to(ROOT).as_posix() for file in (ROOT / "docs").rglob("*.md"))}
    assert {page for page in pages if not page.startswith(FOLLOWED) and any(documented(page))} <= set(PAGES)


def test_documented_commands_run(start_node: StartNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """None is refused, misspelt or out of date."""
    configuration = (ROOT / "conf" / "standalone.yaml").read_text(encoding="utf-8")
    node = start_node(configuration=configuration)
    for name, service in (("PYDDMQ_PRODUCER", "producer"), ("PYDDMQ_CONSUMER", "consumer"), ("PYDDMQ_ADMIN", "admin")):
        monkeypatch.setenv(name, node.ready[service])
    monkeypatch.chdir(ROOT)
    for page in PAGES:
        for _, *shown in documented(page):
            if shown[0] in OWN_TESTS:
                continue
            words = [node.ready["data"] if each == "data" else each for each in shown]
            if "--follow" in words:
                # It would wait for more for ever.
                assert run(["send", "orders", "{}"]) == ExitCode.OK
                words += ["--count", "1"]
            if words[0] == "lag" and words[1:2] in (["check"], ["slo"], ["report"]):
                # Of a node that has just started too little is known, and a busy machine has a slow disk: WARN.
                assert run(words) in (0, 1, 3), (page, words)
                continue
            # What the page does to a stuck message is done to somebody's own group.
            wanted = ExitCode.NOT_FOUND if page == "docs/operations.md" and "billing" in words else ExitCode.OK
            assert run(words) == wanted, (page, words)
