"""The section `limits`: what is wrong is said with its place and what would be right; all of it changes at once."""

from __future__ import annotations

import pytest

from conf import loads
from conf.diff import diff
from tests.unit.conf_tools import refused

ACCESS = "access: {rules: []}\n"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        (
            "[]",
            "f.yaml:2: limits: must be a mapping; write `limits:` and below it `addresses:` or `principals:`",
        ),
        ("{addresses: {}}", "limits.addresses: must be a list; write `addresses:`"),
        ("{share: 0}", "limits.share: is 0; must be more than 0"),
        ("{shares: 1}", "limits.shares: is not a known key; did you mean share?"),
        (
            "{addresses: [{networks: [10.0.0.0/8]}]}",
            "limits.addresses[0]: sets no limit; set at least one of `requestsPerSecond`",
        ),
        ("{addresses: [{networks: [], connections: 1}]}", "limits.addresses[0].networks: has too few entries"),
        ("{addresses: [{networks: [10.0.0.1/8], connections: 1}]}", "is not a valid network; write 10.0.0.0/8"),
        ("{addresses: [{networks: [10.0.0.0/8], connections: 0}]}", "limits.addresses[0].connections: is 0; must be"),
        (
            "{addresses: [{networks: [10.0.0.0/8], pendingTimers: 1}]}",
            "limits.addresses[0].pendingTimers: is not a known key",
        ),
        ("{principals: [{principals: [a b], connections: 1}]}", "'a b' is not a valid principal pattern"),
        ("{principals: [{principals: [a], requestsPerSecond: 0}]}", "requestsPerSecond: is 0; must be more than 0"),
        ("{principals: [{principals: [a], bytesInPerSecond: 1}]}", "bytesInPerSecond: is 1; must be at least 1024"),
        ("{principals: [{principals: [a], idleTimeout: 5s}]}", "it is in milliseconds: write 5000"),
    ],
)
def test_wrong_sections_are_told_with_what_would_be_right(section: str, said: str) -> None:
    """Key, what is wrong, what would be right; nothing of it counts."""
    assert said in refused(f"{ACCESS}limits: {section}\n")


def test_principals_need_a_section_access() -> None:
    """Without one nobody has a principal, and the line would limit nobody without a word."""
    line = "limits: {principals: [{principals: [a], connections: 1}]}\n"
    assert "limits.principals: without a section `access` no client has a principal" in refused(line)
    assert loads(ACCESS + line).config.limits.principals[0].connections == 1


def test_empty_section_limits_nobody() -> None:
    """Neither does none."""
    for text in ("limits:\n", "limits: {}\n", "limits: {principals: [], addresses: []}\n", "node: {}\n"):
        assert not loads(text).config.limits.limits_any


def test_all_of_it_changes_at_once() -> None:
    """It may come, change and go while the node runs."""
    none = loads("node: {}").config
    some = loads("limits: {share: 1, addresses: [{networks: ['::/0'], connections: 1}]}").config
    assert diff(none, some).sections == diff(some, none).sections == {"limits": ("share", "addresses")}
    assert not diff(none, some).refusals
    assert "limits.share: changes at once" in diff(none, some).sentences()
    assert diff(some, some).empty
