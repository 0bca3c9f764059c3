"""Commands and options of the version before are refused by name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from proxy.cli.app import REMOVED, refusal, run
from proxy.process.exit_codes import ExitCode

ROOT = Path(__file__).parents[4]


@pytest.mark.parametrize("words", REMOVED, ids=" ".join)
def test_removed_command_names_its_replacement(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    """With exit code 2, in JSON too; an example that is named exists."""
    assert run(list(words)) == ExitCode.USAGE
    assert f"`pyddmq {' '.join(words)}` was removed; {REMOVED[words]} instead" in capsys.readouterr().err
    assert run([*words, "--json"]) == ExitCode.USAGE
    assert REMOVED[words] in json.loads(capsys.readouterr().err)["error"]["message"]
    example = REMOVED[words].removeprefix("run ")
    assert not example.startswith("examples/") or (ROOT / example).exists()


def test_option_is_found_behind_its_command_alone() -> None:
    """Also with `=` and behind `events`; not as an argument, and not of another command."""
    assert refusal(["demo", "events", "--clients", "2", "--upstream=kafka"]) is not None
    assert refusal(["demo", "--", "--upstream"]) is None
    assert refusal(["lag", "--upstream", "kafka"]) is None
    assert refusal(["demo", "lag"]) is refusal([]) is None


@pytest.mark.parametrize("before", [["--token-file", "t"], ["--token-file=t"], ["--tls-ca", "a", "--tls-name", "n"]])
def test_removed_command_is_found_behind_options_of_all_commands(before: list[str]) -> None:
    """They precede the command, with a value each."""
    assert refusal([*before, "lag", "check", "--mode", "burrow"]) is not None
    assert refusal([*before, "demo", "order"]) is not None
    assert refusal(before) is refusal([*before, "lag", "check"]) is None
