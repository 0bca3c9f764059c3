"""Lists in the options of the jobs' programs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lag.spark.jobs.arguments import first_sentence, folders, listed


def test_names_stand_behind_each_other_with_commas() -> None:
    """Blanks around them, and commas without a name, are nothing."""
    assert listed(" a, b,,c ") == ["a", "b", "c"]
    assert listed("") == []


def test_folders_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An executor that works elsewhere finds the same folder."""
    monkeypatch.chdir(tmp_path)
    assert folders("data, /mnt/lag") == [f"{tmp_path}/data", "/mnt/lag"]


def test_errors_of_spark_are_one_line() -> None:
    """Without the stacks of its machines; what says nothing is called by its kind."""
    said = (
        "An error occurred while calling o6.collect.\n: org.apache.spark.SparkException: no room\n\tat a.b(c.scala:1)"
    )
    assert first_sentence(RuntimeError(said)) == "org.apache.spark.SparkException: no room"
    assert first_sentence(RuntimeError("")) == "RuntimeError"


def test_text_that_cannot_be_written_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its job took minutes, and has ended."""
    from lag.spark.jobs.text_program import write_text

    assert write_text("backlog", "text", f"{tmp_path}/there/text") == 1
    assert capsys.readouterr().err == (
        f"pyddmq lag backlog: {tmp_path}/there/text cannot be written: No such file or directory\n"
    )
    assert write_text("backlog", "text", f"{tmp_path}/text") == 0
    assert (tmp_path / "text").read_text() == "text"


@pytest.mark.parametrize(("target", "code"), [("0.5", 1), ("inf", 2)])
def test_target_is_what_the_command_takes(monkeypatch: pytest.MonkeyPatch, target: str, code: int) -> None:
    """Half a second is one; what is no time is refused before Spark is started."""
    from lag.spark.jobs import program

    def made(*_: object, **__: object) -> None:
        raise RuntimeError("Spark would be started")

    monkeypatch.setattr(program, "made", made)
    window = ["--from", "2026-01-01", "--to", "2026-01-02"]
    assert program.main(["--journal", "/nowhere", *window, "--target", target]) == code
