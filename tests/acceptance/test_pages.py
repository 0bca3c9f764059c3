"""The tutorial and the how-to pages work as they stand there: files saved, lines typed, output compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.pages import NOT_RUN, ROOT, Block, blocks_of, follow

TUTORIAL = "docs/tutorial.md"
PAGES = [TUTORIAL, *sorted(f"docs/howto/{file.name}" for file in (ROOT / "docs" / "howto").glob("*.md"))]
NOT_ON_EVERY_MACHINE = {
    TUTORIAL: "installs from a registry",
    "docs/howto/alert-with-prometheus.md": "needs Prometheus; `test_prometheus` has its tools read the files",
    "docs/howto/container.md": "needs a container engine; `test_dockerfile` runs what the image would run",
    "docs/howto/deploy.md": "needs containers or Kubernetes; `test_deploy_files` has its schemas read the files",
    "docs/howto/lag-on-call.md": "names an offset of one's own",
    "docs/howto/scale-with-keda.md": "needs Kubernetes; `test_documented_yaml` reads its objects",
    "docs/howto/rocketmq.md": "needs Java and RocketMQ; `make interop` does it",
    "docs/howto/systemd.md": "needs root and systemd; `test_systemd_unit` checks the unit",
    "docs/howto/trace.md": "installs from a registry",
    "docs/howto/upgrade.md": "installs from a registry",
}
"""Why a page has blocks that are not run."""


@pytest.mark.parametrize("page", PAGES)
def test_page_can_be_followed(page: str, tmp_path: Path) -> None:
    """Each line ends as the page says, and prints what it shows."""
    follow(page, tmp_path)


def test_blocks_that_are_not_run_have_a_reason() -> None:
    """A new one is entered above; whatever can be run here is."""
    assert {page for page in PAGES if any(block.language == NOT_RUN for block in blocks_of(page))} == set(
        NOT_ON_EVERY_MACHINE
    )


def test_pages_are_short_enough_to_follow() -> None:
    """A how-to is one screen or two; more belongs on the pages that it links to."""
    lengths = {page: len((ROOT / page).read_text(encoding="utf-8").splitlines()) for page in PAGES if page != TUTORIAL}
    assert len(lengths) >= 9
    assert not {page: lines for page, lines in lengths.items() if not 25 <= lines <= 95}


def page_with(text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A page of these words in the place of the project's; returns a folder to follow it in."""
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "page.md").write_text(text)
    monkeypatch.setattr("tests.acceptance.pages.ROOT", tmp_path)
    folder = tmp_path / "folder"
    folder.mkdir()
    return folder


def test_lines_of_one_page_share_a_shell_and_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is saved is there, variables stay, codes and output are as the page says, `console` is left out."""
    page = (
        "Save as `say.py`:\n\n```python\nprint('one')\nprint('two 9613')\n```\n\n"
        "```sh\nNAME=value\npython say.py\nfalse   # exit code 1\n```\n\n```text\none\ntwo ...\n```\n\n"
        '```sh\nsleep 60 &\nkill -9 %1\ntest "$NAME" = value\n```\n\n```console\nfalse\n```\n'
    )
    first, second = follow("docs/page.md", page_with(page, monkeypatch, tmp_path))
    assert first.startswith("one\ntwo ")
    assert "9613" not in first
    assert second == ""
    assert blocks_of("docs/page.md")[0] == Block("python", "print('one')\nprint('two 9613')\n", "say.py")


@pytest.mark.parametrize(
    ("shell", "text", "said"),
    [
        ("true\nfalse\ntrue", "", "ended with 1 instead of 0: false"),
        ("true   # exit code 5", "", "ended with 0 instead of 5: true"),
        ("echo one; echo two", "two\none", "shows 'one'"),
        ("echo 1 of 3", "1 ... 4", "shows '1 ... 4'"),
    ],
)
def test_page_that_is_wrong_is_noticed(
    shell: str, text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A line that fails, a code that is another, output that is not as shown or in another order."""
    folder = page_with(f"```sh\n{shell}\n```\n\n```text\n{text}\n```\n", monkeypatch, tmp_path)
    with pytest.raises(AssertionError, match=said):
        follow("docs/page.md", folder)
