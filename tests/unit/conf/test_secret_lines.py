"""The text of a configuration file as people are shown it."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from conf import ConfigError
from conf.loader import load
from conf.secret_lines import without_secret_lines


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("sasl.password: s3cret # mine", "sasl.password: ***"),
        ("# password: s3cret", "# password: ***"),
        ('"Authorization": "Bearer s3cret"', '"Authorization": ***'),
        ('{"token":"s3cret"}', '{"token": ***'),
        ("a: {X-Api-Key: s3cret, b: 1}", "a: {X-Api-Key: ***"),
        ("token: |\n  s3cret\n\n  s3cret\nname: x", "token: ***\n  ***\n\n  ***\nname: x"),
        ("tokens:\n- s3cret\n- s3cret\nname: x", "tokens:\n- ***\n- ***\nname: x"),
        ("- token: s3cret\n  name: x", "- token: ***\n  name: x"),
        ("password:\n  file: /run/secret\nx: 1", "password:\n  file: /run/secret\nx: 1"),
        ("{password: {file: /run/secret}, token: s3cret}", "{password: {file: /run/secret}, token: ***"),
        ("url: https://user:s3cret@host/x?sig=s3cret", "url: https://***@host/x?***"),
        ("urls: ['https://host/?a=s3cret', 'http://host/']", "urls: ['https://host/?***', 'http://host/']"),
        ("plain: &one s3cret\npassword: *one", "plain: &one ***\npassword: ***"),
        ("? password\n: s3cret", "? password\n: ***"),
        ("topics:\n  orders: {queues: 4} # four", "topics:\n  orders: {queues: 4} # four"),
        ("password: s3cret\n\tbroken: [", "password: ***\n\t***"),
    ],
)
def test_secrets_are_replaced_and_nothing_else(text: str, shown: str) -> None:
    """By the names of keys, in comments and in what is no YAML; the place of a secret is shown."""
    assert without_secret_lines(text) == shown
    assert "s3cret" not in shown


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a: " + "token" * 100_000, "a: " + "token" * 100_000),
        ("a: " + "://" * 200_000, "a: " + "://" * 200_000),
        (
            "".join(f"k{at}: &k{at} {{password: s3cret-{at}, b: 1}}\n" for at in range(8_000)),
            "\n".join(f"k{at}: &k{at} {{password: ***" for at in range(8_000)),
        ),
    ],
    ids=["one value", "one address", "many secrets"],
)
def test_long_text_takes_no_longer_than_its_length(text: str, shown: str) -> None:
    """The first two took minutes, the last one seconds: a node reads its file in a reload."""
    began = time.process_time()
    assert without_secret_lines(text) == shown
    assert time.process_time() - began < 1.5


def test_longest_secret_is_replaced_where_one_begins_with_another() -> None:
    """Nothing of it is left, wherever it is."""
    text = "x: [s3cret, s3cret-2, ws3cret-2]\npassword: [s3cret, s3cret-2]"
    assert without_secret_lines(text) == "x: [***, ***, w***]\npassword: ***"


def test_file_that_is_refused_has_its_text(tmp_path: Path) -> None:
    """As one that is accepted: both without secrets, line by line as they are."""
    path = tmp_path / "node.yaml"
    path.write_text("topics:\n  orders: {queues: 1}\n# token: abc\n")
    assert load(path).shown == "topics:\n  orders: {queues: 1}\n# token: ***"
    path.write_text("topics:\n  orders: {queues: many}\n# token: abc\n")
    with pytest.raises(ConfigError) as refused:
        load(path)
    assert refused.value.shown.splitlines()[1:] == ["  orders: {queues: many}", "# token: ***"]
    assert refused.value.problems[0].line == 2
