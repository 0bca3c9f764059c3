"""The version between releases names the commit, with git's files alone."""

from __future__ import annotations

import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from pyddmq.version import COMMIT_FILE, commit_of, version_in

COMMIT = "1a2b3c4d5e6f7890" + "0" * 24


def checkout(root: Path, head: str, files: dict[str, str]) -> Path:
    """A checkout whose `.git` has these files; returns its package."""
    for name, text in {"HEAD": head, **files}.items():
        path = root / ".git" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    (root / "pyproject.toml").write_text('[project]\nname = "pyddmq"\nversion = "0.3.0"\n')
    package = root / "pyddmq"
    package.mkdir()
    return package


@pytest.mark.parametrize(
    ("head", "files", "expected"),
    [
        (COMMIT, {}, "0.3.0+g1a2b3c4d"),
        ("ref: refs/heads/main", {"refs/heads/main": COMMIT}, "0.3.0+g1a2b3c4d"),
        ("ref: refs/heads/main", {"packed-refs": f"# pack-refs\n{COMMIT} refs/heads/main"}, "0.3.0+g1a2b3c4d"),
        ("ref: refs/heads/main", {"packed-refs": f"{COMMIT} refs/heads/main2"}, "0.3.0"),
    ],
    ids=["detached", "branch", "packed", "no commit yet"],
)
def test_a_checkout_has_the_commit_of_its_head(tmp_path: Path, head: str, files: dict[str, str], expected: str) -> None:
    """Wherever git keeps the branch."""
    assert version_in(checkout(tmp_path, head, files)) == expected


def test_a_worktree_has_its_own_commit(tmp_path: Path) -> None:
    """Its `.git` is a file that names the folder."""
    checkout(tmp_path / "main", "ref: refs/heads/main", {"refs/heads/side": COMMIT})
    own = tmp_path / "main" / ".git" / "worktrees" / "side"
    own.mkdir(parents=True)
    (own / "HEAD").write_text("ref: refs/heads/side\n")
    (own / "commondir").write_text("../..\n")
    side = tmp_path / "side"
    side.mkdir()
    (side / ".git").write_text(f"gitdir: {own}\n")
    assert commit_of(side) == COMMIT


def test_an_installed_package_has_the_commit_of_its_wheel_or_none(tmp_path: Path) -> None:
    """A release has no such file."""
    assert version_in(tmp_path) == version("pyddmq")
    (tmp_path / COMMIT_FILE).write_text(COMMIT)
    assert version_in(tmp_path) == f"{version('pyddmq')}+g1a2b3c4d"


def test_this_checkout_is_at_the_commit_that_git_names() -> None:
    """Where git is installed and this is a checkout."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():
        pytest.skip("no checkout")
    said = subprocess.run(["git", "rev-parse", "HEAD"], cwd=root, capture_output=True, text=True, check=False)
    if said.returncode:
        pytest.skip("git cannot read this checkout")
    assert commit_of(root) == said.stdout.strip()
