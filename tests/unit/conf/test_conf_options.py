"""Options of actions in YAML: DDMQ's names for them, and places inside texts."""

from __future__ import annotations

import pytest

from actions.registry import Registry
from conf import ConfigError, loads
from conf.loader import Loaded

HEAD = """
topics: {t: {}}
groups:
- group: g
  topics:
  - topic: t
"""


def load(text: str) -> Loaded:
    """Load a subscription's lines."""
    lines = "".join(f"    {line}\n" if line else "\n" for line in text.split("\n"))
    return loads(HEAD + lines, file="node.yaml", actions=Registry())


def problems(text: str) -> list[str]:
    """What is wrong with a subscription's lines, which begin on line 7."""
    with pytest.raises(ConfigError) as refused:
        load(text)
    return [str(each) for each in refused.value.problems]


def test_ddmqs_fields_are_options() -> None:
    """Their YAML works: what stands beside `actions` there belongs to an action here."""
    loaded = load(
        "actions: [Json, Transit, QueryParams, FormParams2, PullServer]\n"
        "transit: {$.a: $.b}\n"
        "queryParams: {id: $.id}\n"
        "appendContext: [TOPIC, TOKEN]\n"
        "tokenKey: {env: FORM_TOKEN}"
    )
    assert not loaded.warnings
    assert loaded.config.groups["g"].topics[0].options == {
        "Transit": {"fields": {"$.a": "$.b"}},
        "QueryParams": {"fields": {"id": "$.id"}},
        "FormParams2": {"appendContext": ["TOPIC", "TOKEN"], "tokenKey": {"env": "FORM_TOKEN"}},
    }


def test_secret_that_is_written_out_is_refused_and_not_repeated() -> None:
    """D60, and W66: DDMQ has the key itself there."""
    [said] = problems("actions: [Json, FormParams, PullServer]\ntokenKey: sesame")
    assert "write {file: PATH} or {env: NAME}" in said
    assert "sesame" not in said


def test_ddmqs_field_without_its_action_is_a_warning() -> None:
    """It changes nothing in DDMQ either; empty ones, as its console writes them, are not worth a word."""
    loaded = load("transit: {$.a: $.b}\nqueryParams: {}\nappendContext: null\ntokenKey: ''")
    assert [str(each) for each in loaded.warnings] == [
        "node.yaml:7: groups[g].topics[t].transit: has no effect: it is the option `fields` of Transit, which the "
        "pipeline does not have"
    ]


def test_errors_name_the_field_that_stands_in_the_file() -> None:
    """Not the option that it became; given twice, it is refused."""
    text = "actions: [Json, Transit, PullServer]\ntransit:\n  $.a: $.b\n  $.c: 'x ['"
    [said] = problems(text)
    assert said.startswith("node.yaml:10: groups[g].topics[t].transit.$.c: 'x [' is not a valid JSON path")
    [said] = problems("actions: [Json, Transit, PullServer]\ntransit: {a: b}\noptions: {Transit: {fields: {a: c}}}")
    assert "transit: is also given as options.Transit.fields; keep options.Transit.fields" in said


@pytest.mark.parametrize("text", ["actions: [Json, Groovy, PullServer]", "groovyScript: return true"])
def test_groovy_is_refused_with_what_takes_its_place(text: str) -> None:
    """By name and by script."""
    [said] = problems(text)
    assert "Filter (CEL)" in said
    assert "action Python" in said


@pytest.mark.parametrize(
    ("lines", "place"),
    [
        ("    expression: json.a > 1 && oops", "10:35"),
        ("    expression: 'json.a == ''x'' && oops'", "10:41"),
        ('    expression: "json.a == \\"x\\" && oops"', "10:41"),
        ("    expression: |\n      json.a > 1\n        && oops", "12:16"),
        ("    expression: >-\n\n      json.a > 1 &&\n\n      oops", "14:11"),
        ("    expression: json.a > 1\n      && oops", "11:14"),
        ("    expression: json.a > 1 &&", "10:34"),
    ],
)
def test_wrong_expression_has_line_and_column_of_the_file(lines: str, place: str) -> None:
    """In each of YAML's ways to write a text; at its end the place behind the last character."""
    pytest.importorskip("cel_expr_python")
    [said] = problems(f"actions: [Json, Filter, PullServer]\noptions:\n  Filter:\n{lines}")
    assert said.startswith(f"node.yaml:{place}: groups[g].topics[t].options.Filter.expression: "), said


def test_place_in_an_escaped_text_is_told_by_the_text() -> None:
    """Where the file has other characters than the value, line and column are the text's own."""
    pytest.importorskip("cel_expr_python")
    [said] = problems('actions: [Filter, PullServer]\noptions: {Filter: {expression: "\\x31 == oops"}}')
    assert "line 1, column 6 of the text: undeclared reference" in said


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("Transit: {fields: {}}", "at least 1 item"),
        ("Transit: {fields: {a.*: b}}", "'a.*' is not a valid target path"),
        ("Transit: {fields: {'a[1000]': b}}", "index above 999"),
        ("Transit: {fields: {'[0]': b}}", "the body is an object"),
        ("Transit: {}", "fields: is absent"),
        ("Transit: {fields: {a: b}, mising: skip}", "did you mean missing?"),
        ("Transit: {fields: {a: b}, missing: drop}", "'fail', 'skip' or 'null'"),
    ],
)
def test_wrong_option_says_what_would_be_right(options: str, said: str) -> None:
    """With its key."""
    [text] = problems(f"actions: [Json, Transit, PullServer]\noptions: {{{options}}}")
    assert said in text
