"""The section `lag`: what it takes, and what is said of what it does not."""

from __future__ import annotations

import pytest

from conf import Config, LagConfig, LagRules, loads
from conf.diff import diff
from tests.unit.conf_tools import refused


def test_defaults_are_on_every_ten_seconds() -> None:
    """Without the section the journal is kept."""
    lag = Config().lag
    assert (lag.enabled, lag.every_ms, lag.keys) == (True, 10_000, "plain")
    assert (lag.keep_ms("raw"), lag.keep_ms("minute"), lag.keep_ms("hour")) == (
        2 * 86_400_000,
        35 * 86_400_000,
        400 * 86_400_000,
    )


def test_section_is_read() -> None:
    """A tier that is not named keeps its default; YAML's `off` is the word here."""
    lag = loads("lag: {enabled: false, every: 1m, keys: off, keep: {raw: 6h}, bytesMax: 8388608}\n").config.lag
    assert (lag.enabled, lag.every_ms, lag.keys, lag.bytes_max) == (False, 60_000, "off", 8_388_608)
    assert (lag.keep_ms("raw"), lag.keep_ms("hour")) == (6 * 3_600_000, 400 * 86_400_000)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lag: {every: 10}", "lag.every: must be text"),
        ("lag: {every: 500ms}", "lag.every: 500ms is not within 1s and 1h; use for example 10s"),
        ("lag: {every: 2h}", "lag.every: 2h is not within 1s and 1h"),
        ("lag: {every: soon}", "lag.every: 'soon' is not a valid duration; write a number and one of ms, s, m, h, d"),
        ("lag: {keys: secret}", "write 'plain', 'hashed' or 'off'"),
        ("lag: {keep: {week: 1d}}", "write 'raw', 'minute' or 'hour'"),
        ("lag: {keep: {raw: 2}}", "lag.keep.raw"),
        ("lag: {bytesMax: 1}", "must be at least 4194304"),
        ("lag: {evry: 10s}", "did you mean every?"),
        ("lag: {rules: {stopp: 3m}}", "did you mean stop?"),
        ("lag: {rules: {stop: 3}}", "lag.rules.stop: must be text"),
        (
            "lag: {rules: {stop: soon}}",
            "lag.rules.stop: 'soon' is not a valid duration; write a number and one of ms, s, m, h, d",
        ),
        ("lag: {rules: {deadBand: 1.0}}", "lag.rules.deadBand: is 1.0; must be less than 1"),
        ("lag: {rules: {stop: 6m, window: 5m}}", "window must be at least as long as stop"),
        (
            "lagg: {}",
            "did you mean lag? the sections are node, access, admin, limits, lag, tls, kafka, topics and groups",
        ),
    ],
)
def test_wrong_values_are_told_with_what_would_be_right(text: str, said: str) -> None:
    """Key, what is wrong, what would be right."""
    assert said in refused(text)


def test_change_of_the_section_is_live() -> None:
    """Named field by field, and nothing else is touched."""
    changes = diff(Config(), Config(lag=LagConfig(every="1m", keys="hashed")))
    assert changes.sentences() == ["lag.every: changes at once", "lag.keys: changes at once"]
    assert not changes.refusals
    assert not changes.empty


def test_change_of_the_rules_is_live() -> None:
    """Of the node, and of a group alone."""
    rules = LagRules.model_validate({"stop": "2m"})
    assert diff(Config(), Config(lag=LagConfig(rules=rules))).sentences() == ["lag.rules: changes at once"]
    before = loads("topics: {t: {}}\ngroups: [{group: g, topics: [{topic: t}]}]\n").config
    after = loads("topics: {t: {}}\ngroups: [{group: g, lagRules: {stop: 2m}, topics: [{topic: t}]}]\n").config
    assert diff(before, after).sentences() == ["group g: changes at once: lagRules"]


GROUP = "topics: {t: {}}\ngroups: [{group: g, ackLog: %s, topics: [{topic: t, actions: [%s]}]}]\n"


@pytest.mark.parametrize(
    ("text", "one_in"), [("off", 0), ("all", 1), ("1", 1), ("1.0", 1), ("0.01", 100), ("0.3", 3), ("0.9", 1)]
)
def test_share_of_an_ack_log_is_read(text: str, one_in: int) -> None:
    """`off`, which YAML takes for a truth value, `all`, or one of so many."""
    assert loads(GROUP % (text, "Async, PullServer")).config.groups["g"].ack_log_one_in == one_in


@pytest.mark.parametrize("text", ["0", "1.5", "-0.1", "some", "true", "[1]", ".nan"])
def test_share_that_is_none_is_told(text: str) -> None:
    """With what would be right."""
    said = refused(GROUP % (text, "Async, PullServer"))
    assert "ackLog" in said
    assert "write off, all, or a share above 0 and up to 1, such as 0.01" in said


def test_low_level_group_has_no_ack_log() -> None:
    """Its clients acknowledge offsets, not messages."""
    said = refused(GROUP % ("all", "LowLevel"))
    assert "ackLog: clients of 'g' acknowledge offsets (LowLevel), so single messages do not finish" in said
