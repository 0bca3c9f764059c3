"""The section `access`: what is wrong is said with its place and with what would be right."""

from __future__ import annotations

import pytest

from conf import loads
from conf.checks import check_node
from conf.diff import diff
from tests.unit.conf_tools import refused

RULE = "{principals: [a], produce: [t]}"


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("", "f.yaml:1: access: has no rules; write `rules:`"),
        ("open", "access: has no rules"),
        ("{}", "access.rules: is missing; add `rules: ...`"),
        ("{rules: {}}", "access.rules: must be a list"),
        ("{rules: null}", "access.rules: must be a list"),
        ("{rules: [], rule: []}", "access.rule: is not a known key; did you mean rules?"),
        ("{rules: [{principals: [a]}]}", "access.rules[0]: allows nothing; list topics under `produce`"),
        ("{rules: [{principals: [], produce: [t]}]}", "access.rules[0].principals: has too few entries"),
        ("{rules: [{principals: a, produce: [t]}]}", "must be a list, such as [a, b], is the text 'a'; write [a]"),
        ("{rules: [{principals: ['a b'], produce: [t]}]}", "'a b' is not a valid principal pattern"),
        ("{rules: [{principals: [a], produce: ['']}]}", "'' is not a valid pattern"),
        ("{rules: [{principals: [a], publish: [t]}]}", "is not a known key"),
        ("{rules: [{principals: [a], administer: all}]}", "must be true or false"),
        ("{networks: [{cidr: 10.0.0.1/8, principal: a}], rules: []}", "is not a valid network; write 10.0.0.0/8"),
        ("{networks: [{cidr: lan, principal: a}], rules: []}", "write for example 10.20.0.0/16 or fd00::/8"),
        ("{networks: [{cidr: '::ffff:10.0.0.0/104', principal: a}], rules: []}", "write the IPv4 network"),
        (
            "{networks: [{cidr: 10.0.0.0/8, principal: anonymous}], rules: []}",
            "anonymous is reserved for clients without a principal",
        ),
        ("{networks: [{cidr: 10.0.0.0/8}], rules: []}", "is missing; add `principal: ...`"),
        ("{certificates: [{principal: a}], rules: []}", "use one of the two"),
        ("{certificates: [{subject: CN=a, name: 'DNS:a', principal: a}], rules: []}", "use one of the two"),
        ("{certificates: [{name: a.example, principal: a}], rules: []}", "write DNS:..., URI:... or email:..."),
        ("{jwt: [{name: k, file: f, algorithms: [HS256], issuer: i, audience: a}], rules: []}", "'ES256'"),
        ("{jwt: [{name: k, file: f, algorithms: [], issuer: i, audience: a}], rules: []}", "too few entries"),
        ("{jwt: [{name: k, file: f, algorithms: [ES256], issuer: i}], rules: []}", "add `audience: ...`"),
    ],
)
def test_wrong_sections_are_told_with_what_would_be_right(section: str, said: str) -> None:
    """Key, what is wrong, what would be right; nothing of it counts."""
    assert said in refused(f"access: {section}\n")


def test_all_problems_are_told_at_once_each_with_its_line() -> None:
    """As of every other section."""
    text = "access:\n  networks:\n    - {cidr: x, principal: a}\n  rules:\n    - {principals: [a]}\n"
    text += "    - {principals: ['*']}\n"
    lines = refused(text).splitlines()
    assert [line.split(": ")[0] for line in lines] == ["f.yaml:3", "f.yaml:5", "f.yaml:6"]


def test_key_is_listed_once() -> None:
    """Two keys of one name would be a matter of luck."""
    key = "{name: k, file: f, algorithms: [ES256], issuer: i, audience: a}"
    assert "the key 'k' is listed twice" in refused(f"access: {{jwt: [{key}, {key}], rules: []}}")


@pytest.mark.parametrize(
    ("node", "section", "problems"),
    [
        ("{host: 0.0.0.0}", "", ["host"]),
        ("{host: 0.0.0.0}", f"access: {{rules: [{RULE}]}}", []),
        ("{host: 0.0.0.0}", "access: {rules: []}", []),
        ("{host: 0.0.0.0, access: open}", "", []),
        ("{host: 0.0.0.0, adminHost: 0.0.0.0}", f"access: {{rules: [{RULE}]}}", []),
        ("{host: 0.0.0.0, adminHost: 0.0.0.0}", "", ["host", "adminHost"]),
        ("{host: 0.0.0.0, adminHost: 0.0.0.0, access: open}", "", ["adminHost"]),
    ],
)
def test_port_is_opened_by_rules_or_by_saying_so(node: str, section: str, problems: list[str]) -> None:
    """Rules hold for all ports; the word opens the Thrift ports alone."""
    text = f"node: {node}\n{section}\n"
    if problems:
        assert all(f"node.{each}:" in refused(text) for each in problems)
    else:
        config = loads(text).config
        assert not list(check_node(config.node, ruled=config.access is not None))


def test_change_of_access_is_live_and_its_coming_and_going_is_refused() -> None:
    """Which field, and never what stands in it."""
    one = loads(f"access: {{rules: [{RULE}]}}").config
    other = loads("access: {tokens: /secret/place, rules: []}").config
    assert diff(one, other).sections["access"] == ("tokens", "rules")
    assert "/secret" not in "\n".join(diff(one, other).sentences())
    none = loads("{}").config
    assert [str(each).split(";")[0] for each in diff(one, none).refusals] == [
        "access: cannot be removed while the node runs, since every client would be allowed everything"
    ]
    assert len(diff(none, one).refusals) == 1


def test_change_of_the_admin_ports_settings_is_live() -> None:
    """Names come and go without a restart."""
    one, other = loads("{}").config, loads("admin: {hosts: [a.example], auditFiles: 3}").config
    changes = diff(one, other)
    assert (changes.sections["admin"], changes.refusals, changes.empty) == (("hosts", "auditFiles"), (), False)
    assert changes.sentences() == ["admin.hosts: changes at once", "admin.auditFiles: changes at once"]
