"""`pyddmq access`: tokens in a file, and which line decides."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from conf.sections.access_files import tokens_of
from proxy.access.tokens import find
from proxy.cli.app import run

CONFIG = """\
access:
  rules:
    - {principals: [billing], consume: [orders-billing]}
    - {principals: ["b*"], view: ["*"]}
"""


def reported(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Run a command; returns its exit code and what it printed."""
    code = run(arguments)
    out, err = capsys.readouterr()
    return code, out + err


def test_token_is_printed_once_and_kept_as_its_hash(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is its owner's alone, and the printed text proves what it says."""
    file = tmp_path / "tokens.json"
    code, text = reported(
        capsys, "access", "token", "create", "--file", str(file), "--principal", "shop", "--days", "1"
    )
    assert code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert text.strip().split("_")[2] not in file.read_text()
    tokens = tokens_of(file.read_bytes(), "f")
    found = find(text.strip(), tokens, 0)
    assert found is not None
    assert found.principal == "shop"
    assert found.expires_ms - found.created_ms == 86_400_000
    assert list(tmp_path.iterdir()) == [file]


def test_tokens_are_listed_and_revoked_by_id_or_principal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What is named and not there changes nothing."""
    file = str(tmp_path / "tokens.json")
    for principal in ("a", "b", "b"):
        reported(capsys, "access", "token", "create", "-f", file, "-p", principal)
    _, listed = reported(capsys, "access", "token", "list", "-f", file, "--json")
    ids = {each["id"]: each["principal"] for each in json.loads(listed)}
    assert sorted(ids.values()) == ["a", "b", "b"]
    assert "sha256" not in listed
    first = next(iter(ids))
    assert reported(capsys, "access", "token", "revoke", "-f", file, first, "0" * 16)[0] == 11
    assert reported(capsys, "access", "token", "revoke", "-f", file, "-p", "c")[0] == 11
    assert reported(capsys, "access", "token", "revoke", "-f", file)[0] == 2
    assert len(tokens_of(Path(file).read_bytes(), "f")) == 3
    assert reported(capsys, "access", "token", "revoke", "-f", file, "-p", "b")[0] == 0
    assert [each.principal for each in tokens_of(Path(file).read_bytes(), "f").values()] == ["a"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("create", "-p", "anonymous"), 2, "is not a valid principal"),
        (("create", "-p", "a b"), 2, "is not a valid principal"),
        (("create", "-p", "a", "--days", "0"), 2, "days"),
        (("list",), 3, "cannot be read"),
    ],
)
def test_wrong_lines_make_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    """A sentence and an exit code."""
    file = tmp_path / "tokens.json"
    found, text = reported(capsys, "access", "token", *arguments, "--file", str(file))
    assert found == code
    assert said in text
    assert not file.exists()


def test_file_that_is_none_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whatever it is, it is not overwritten."""
    file = tmp_path / "tokens.json"
    file.write_text("notes of mine")
    assert reported(capsys, "access", "token", "create", "-f", str(file), "-p", "a")[0] == 3
    assert file.read_text() == "notes of mine"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("billing", "consume", "orders-billing"), 0, "allowed: {}:3: billing is granted consume on orders-billing"),
        (("billing", "view", "x"), 0, "allowed: {}:4: b* is granted view on *"),
        (("billing", "produce", "x"), 1, "denied: {}: none of the rules that name billing grants produce on x\n  {}:3"),
        (("x", "view", "x"), 1, "denied: {}: no rule names x"),
        (("x", "publish", "x"), 2, "publish is not a valid action; use one of produce, consume"),
    ],
)
def test_explain_names_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, said: str
) -> None:
    """Who asks why is shown the line that gives, or those that might have."""
    file = tmp_path / "node.yaml"
    file.write_text(CONFIG)
    found, text = reported(capsys, "access", "explain", str(file), *arguments)
    assert found == code
    assert said.replace("{}", str(file)) in text


def test_explain_without_rules_says_that_everybody_may(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """There is no line to name."""
    file = tmp_path / "node.yaml"
    file.write_text("node: {}\n")
    code, text = reported(capsys, "access", "explain", str(file), "a", "produce", "t", "--json")
    assert code == 0
    assert json.loads(text)["allowed"] is True


def test_config_check_reads_the_files_of_access_as_a_start_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A missing file of tokens is a problem with its line, not a valid configuration."""
    config = tmp_path / "node.yaml"
    config.write_text(f"access: {{tokens: {tmp_path}/none.json, rules: []}}\n")
    assert run(["config", "check", str(config)]) == 3
    assert f"node.yaml:1: access.tokens: {tmp_path}/none.json cannot be read" in capsys.readouterr().out
