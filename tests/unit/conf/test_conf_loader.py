"""The loader: every error of a file at once, with file, line, key and what would be right."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from conf import ActionSpec, ConfigError, Loaded, Problem, load, loads

ROOT = Path(__file__).parents[3]


class LimitOptions(BaseModel):
    """Options of the action Limit in these tests."""

    most: int


ACTIONS = {
    spec.name: spec
    for spec in (
        ActionSpec(name="Json", provides_json=True),
        ActionSpec(name="Async", is_gate=True),
        ActionSpec(name="NonBlockAsync", is_gate=True),
        ActionSpec(name="Pick", needs_json=True),
        ActionSpec(name="Limit", options_model=LimitOptions),
        ActionSpec(name="PullServer", may_be_last=True),
    )
}


def read(text: str) -> Loaded:
    """Load a text with the actions of these tests."""
    return loads(text, file="f.yaml", actions=ACTIONS)


def problems_of(text: str) -> list[Problem]:
    """Load a text that is wrong and return its problems."""
    with pytest.raises(ConfigError) as caught:
        read(text)
    return caught.value.problems


def subscribed(lines: str) -> str:
    """Return a configuration with one subscription that has these keys, the first of them on line 5."""
    body = "".join(f"        {line}\n" for line in lines.splitlines())
    return f"topics: {{orders: }}\ngroups:\n  - group: billing\n    topics:\n      - topic: orders\n{body}"


def test_load_shipped_files_without_warnings() -> None:
    """The sample and the commented reference are right, and the sample has what the demo needs."""
    for name in ("standalone.yaml", "reference.yaml"):
        assert load(str(ROOT / "conf" / name), actions=ACTIONS).warnings == []
    sample = load(str(ROOT / "conf" / "standalone.yaml"), actions=ACTIONS).config
    (subscription,) = sample.groups["permits-audit"].topics
    assert sample.queue_count("permits") == 8
    assert subscription.order_key == "$['case:concept:name']"
    assert subscription.actions == ["Json", "Async", "PullServer"]


def test_load_empty_text_is_all_defaults() -> None:
    """Every section may be left out, or be empty."""
    assert read("").config == read("node:\ntopics:\ngroups:\n").config


@pytest.mark.parametrize("text", ["", "\n \n", "# nothing yet\n", "---\n"])
def test_load_empty_file_is_a_problem(text: str, tmp_path: Path) -> None:
    """A file that was cut to nothing must not pass for a wish to serve nothing (promise 7); one that says so does."""
    file = tmp_path / "node.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"node\.yaml: is empty; write `topics:` and `groups:`"):
        load(file)
    file.write_text("node: {}\n")
    assert load(file).config.groups == {}


def test_load_tells_all_errors_of_a_file_in_order() -> None:
    """One wrong piece does not hide another's errors, nor its own contradictions."""
    text = (
        "node:\n"
        "  flush: maybe\n"
        "  colour: red\n"
        "topics:\n"
        "  orders: {queues: 0}\n"
        "groups:\n"
        "  - group: billing\n"
        "    topics:\n"
        "      - topic: order\n"
        "        maxTps: 0\n"
        "        orderKey: $.id\n"
        "        actions: [Async, PullServer]\n"
        "  - group: billing\n"
    )

    assert [(problem.line, problem.path) for problem in problems_of(text)] == [
        (2, "node.flush"),
        (3, "node.colour"),
        (5, "topics.orders.queues"),
        (9, "groups[billing].topics[order].topic"),
        (10, "groups[billing].topics[order].maxTps"),
        (11, "groups[billing].topics[order].orderKey"),
        (13, "groups[billing].group"),
    ]


def test_retry_topic_is_not_for_dead_letters() -> None:
    """What fails in a dead-letter topic stays there and is never dead-lettered again (D16)."""
    text = "groups:\n  - group: billing\n    topics:\n      - topic: '%DLQ%billing'\n        retryTopic: true\n"
    (problem,) = problems_of(text)

    assert problem.path == "groups[billing].topics[%DLQ%billing].retryTopic"
    assert (problem.line, "retried in place" in problem.text) == (5, True)


def test_problem_reads_file_line_key_and_sentence() -> None:
    """The printed form is `file:line: key.path: what is wrong; what would be right`."""
    (problem,) = problems_of(subscribed("maxTps: 0"))

    assert str(problem) == (
        "f.yaml:6: groups[billing].topics[orders].maxTps: is 0; must be more than 0, or omit it for no limit"
    )


@pytest.mark.parametrize(
    ("lines", "path", "words"),
    [
        ("maxTsp: 5", "maxTsp", "did you mean maxTps?"),
        ("max_retry: 5", "max_retry", "write maxRetry"),
        ("isEnabled: true", "isEnabled", "write enabled"),
        ("wholly: 5", "wholly", "the keys are topic, enabled"),
        ('timeout: "5000"', "timeout", "write 5000 without quotes"),
        ("timeout: 5000.0", "timeout", "write 5000"),
        ("actions: [Async, {Redis: {hosts: []}}]", "actions", "as options: {Redis: {...}}"),
        ("timeout: true", "timeout", "must be an integer, is true"),
        ("timeout:", "timeout", "is empty; set a value or remove the key"),
        ("enabled: 1", "enabled", "must be true or false"),
        ("timeout: 0", "timeout", "must be at least 1 (default 5000)"),
        ("maxTps: .inf", "maxTps", "finite"),
        ("maxPullBatchSize: 0", "maxPullBatchSize", "must be at least 1"),
        ("actions: PullServer", "actions", "write [PullServer]"),
        ("actions: []", "actions", "the minimum is 1"),
        ("actions: [Async, Pullserver]", "actions[1]", "did you mean PullServer?"),
        ("actions: [Async, Redis]", "actions[1]", "'Redis' is not a valid action; use one of "),
        ("actions: ['my.module:Act', PullServer]", "actions[0]", "cannot be loaded"),
        ("actions: [PullServer, Async]", "actions[1]", "end with PullServer"),
        ("actions: [Async, NonBlockAsync, PullServer]", "actions[1]", "second order gate"),
        ("actions: [Pick, Json, PullServer]", "actions[0]", "put Json before it"),
        ("orderKey: $.id", "orderKey", "write actions: [Json, Async, PullServer]"),
        ("orderKey: $.id\nactions: [Async, Json, PullServer]", "orderKey", "[Json, Async, PullServer]"),
        ("orderKey: $.id\nactions: [PullServer]", "orderKey", "[Json, PullServer]"),
        ("orderKey: key", "orderKey", "write KEY"),
        (
            "orderKey: KEY\nretryTopic: true",
            "retryTopic",
            "which contradicts orderKey (KEY); remove one of the two",
        ),
        ("retryIntervals: [-1]", "retryIntervals", "[1000, -1]"),
        ("tags: [a|b]", "tags", "one tag per entry"),
        ("brokerCluster: other", "brokerCluster", "'pyddmq'"),
        ("options: {Limit: {most: 5}}", "options.Limit", "not among the actions"),
        ("actions: [Limit, PullServer]\noptions: {Limit: {most: many}}", "options.Limit.most", "valid integer"),
        (
            "actions: [Limit, PullServer]\noptions: {Limit: {most: 5, mots: 5}}",
            "options.Limit.mots",
            "is not an option; did you mean most? there are most",
        ),
        (
            "actions: [Limit, PullServer]\noptions: {Limit: {most: 5}, PullServer: {most: 5}}",
            "options.PullServer",
            "has no options",
        ),
        ("urls: ['http://x']", "urls", "it is the option `urls` of AsyncHttp"),
        ("groovyScript: 'true'", "groovyScript", "not in this version"),
        ("consumeFromWhere: last-week", "consumeFromWhere", "'first', 'last' or 'timestamp'"),
    ],
)
def test_subscription_error_says_what_would_be_right(lines: str, path: str, words: str) -> None:
    """Each slip in a subscription is one problem that names its key and the remedy."""
    (problem,) = problems_of(subscribed(lines))

    assert problem.path == f"groups[billing].topics[orders].{path}"
    assert words in problem.text
    assert problem.line is not None
    assert problem.line >= 6


@pytest.mark.parametrize(
    ("lines", "order_key"),
    [
        ("orderKey: $.id\nactions: [Json, Async, PullServer]", "$.id"),
        ("orderKey: $.id\nactions: [Json, PullServer]", "$.id"),
        ("orderKey: KEY\nactions: [PullServer]", "KEY"),
        ("orderKey: QID", "QID"),
    ],
)
def test_order_key_with_what_it_needs_is_taken(lines: str, order_key: str) -> None:
    """Json before the gate, or before the last action without one; QID and KEY need nothing."""
    assert read(subscribed(lines)).config.groups["billing"].topics[0].order_key == order_key


@pytest.mark.parametrize(
    ("text", "path", "words"),
    [
        ("node: {producerPort: 9713}", "node.consumerPort", "is also the port of producerPort"),
        ("node: {adminPort: 9613}", "node.adminPort", "is also the port of producerPort"),
        ("node: {host: 0.0.0.0}", "node.host", "`access: open` under node"),
        ("node: {adminHost: 192.0.2.7}", "node.adminHost", "add a section `access`"),
        ("node: {adminHost: 192.0.2.7, access: open}", "node.adminHost", "does not apply to the admin port"),
        ("admin: {hosts: [https://a.example]}", "admin.hosts[0]", "without scheme and port"),
        ("admin: {hosts: ['a.example:9813']}", "admin.hosts[0]", "not a valid host name"),
        ("admin: {auditFiles: 1}", "admin.auditFiles", "2"),
        ("admin: 5", "admin", "must be a mapping"),
        ("node: {host: broker.example, access: loopback}", "node.host", "not a loopback address"),
        ("node: {host: '::'}", "node.host", "there are no rules"),
        ("node: {access: closed}", "node.access", "open"),
        ("node: {maxReadBufferBytes: 100000}", "node.maxMessageBytes", "maxReadBufferBytes"),
        ("node: {segmentBytes: 65536}", "node.maxMessageBytes", "segmentBytes"),
        ("node: {segmentBytes: 67108865}", "node.segmentBytes", "use 67108864"),
        ("node: {queueFileUnits: 12345}", "node.queueFileUnits", "use 12340"),
        ("node: {brokerName: a b}", "node.brokerName", "plain name"),
        ("node: {data: ''}", "node.data", "is empty"),
        ("node: {kafkaConfigs: {a: 1}}", "node.kafkaConfigs", "not in this version"),
        ("node: 5", "node", "must be a mapping"),
        ("topics: [orders]", "topics", "orders: {queues: 8}"),
        ("topics: {orders: 8}", "topics.orders", "must be a mapping"),
        ("topics: {a b: }", "topics.a b", "letters, digits"),
        ("topics: {orders: {delayTopic: true}}", "topics.orders.delayTopic", "messageType: DELAY"),
        ("topics: {orders: {topicUnits: [1]}}", "topics.orders.topicUnits", "queues and maxTps"),
        ("groups: {billing: }", "groups", "must be a list"),
        ("groups: [billing]", "groups[0]", "must be a mapping"),
        ("groups: [{topics: []}]", "groups[0].group", "is missing"),
        ("groups: [{group: 5}]", "groups[0].group", "put it in quotes"),
        ("lag: {every: 10}", "lag.every", "write a duration with its unit, such as 10s"),
        ("node: {memoryMax: 512MiB}", "node.memoryMax", "it is in bytes: write 536870912"),
        ("node: {memoryMax: 512 MB}", "node.memoryMax", "it is in bytes: write 512000000"),
        ("node: {drainSeconds: 2m}", "node.drainSeconds", "it is in seconds: write 120"),
        ("node: {memoryMax: 1g}", "node.memoryMax", "it is in bytes: write 1073741824"),
        ("groups: [{group: g, topics: orders}]", "groups[g].topics", "must be a list"),
        ("groups: [{group: g, redisConfig: {hosts: [a]}}]", "groups[g].redisConfig", "not in this version"),
        (
            "topics: {t: {}}\ngroups: [{group: g, topics: [{topic: t, redisConfig: {hosts: [a]}}]}]",
            "groups[g].topics[t].redisConfig",
            "not in this version",
        ),
        ("groups: [{group: g, topics: [{}]}]", "groups[g].topics[0].topic", "is missing; add `topic: ...`"),
        ("groups: [{group: g, topics: [{topic: t}]}]", "groups[g].topics[t].topic", "add it under topics"),
        ("groupConfigs: []", "groupConfigs", "write `groups:`"),
        ("grups: []", "grups", "did you mean groups?"),
    ],
)
def test_section_error_says_what_would_be_right(text: str, path: str, words: str) -> None:
    """Each slip in the sections is one problem that names its key and the remedy."""
    (problem,) = problems_of(text)

    assert problem.path == path
    assert words in problem.text


def test_topic_listed_twice_in_a_group_is_an_error() -> None:
    """Which of two entries counts is never left to chance."""
    (problem,) = problems_of(subscribed("") + "      - topic: orders\n")

    assert (problem.line, problem.path) == (6, "groups[billing].topics[orders].topic")


def test_ports_that_are_zero_do_not_collide() -> None:
    """0 takes any free port, as often as wanted."""
    node = read("node: {producerPort: 0, consumerPort: 0, adminPort: 0}").config.node

    assert (node.producer_port, node.consumer_port, node.admin_port) == (0, 0, 0)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1", "localhost", "LocalHost"])
def test_loopback_needs_no_access(host: str) -> None:
    """What only this machine reaches starts without `access: open`."""
    node = read(f"node: {{host: '{host}', adminHost: '{host}'}}").config.node

    assert (node.host, node.admin_host, node.access) == (host, host, "loopback")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "broker.example"])
def test_access_open_lets_the_network_in(host: str) -> None:
    """Any address is taken for the Thrift ports where the file says that it is meant; for the admin port with rules."""
    node = read(f"node: {{host: '{host}', access: open}}").config.node
    ruled = read(f"node: {{adminHost: '{host}'}}\naccess: {{rules: []}}").config.node

    assert (node.host, ruled.admin_host) == (host, host)


def test_one_token_and_rules_exclude_each_other() -> None:
    """Where rules say who may do what there is one way to say who one is."""
    [problem] = problems_of("node: {adminTokenFile: /etc/token}\naccess: {rules: []}")

    assert problem.path == "node.adminTokenFile"
    assert "pyddmq access token create" in problem.text


def test_names_of_the_admin_port_are_taken_in_lower_case() -> None:
    """As browsers send them."""
    assert read("admin: {hosts: [Node-1.Example.com, pyddmq_1]}").config.admin.hosts == [
        "node-1.example.com",
        "pyddmq_1",
    ]


def test_ddmqs_harmless_fields_are_warnings_with_a_reason() -> None:
    """D23: what means nothing here is accepted and said."""
    loaded = read(
        "node: {selectorThreads: 16}\n"
        "topics: {orders: {strongOrder: true}}\n"
        "groups:\n"
        "  - {group: g, asyncThreads: 8, topics: [{topic: orders, proxies: {}, fetchThreads: 2}]}\n"
    )

    assert [(warning.line, warning.path) for warning in loaded.warnings] == [
        (1, "node.selectorThreads"),
        (2, "topics.orders.strongOrder"),
        (4, "groups[g].asyncThreads"),
        (4, "groups[g].topics[orders].proxies"),
        (4, "groups[g].topics[orders].fetchThreads"),
    ]
    assert all("has no effect" in warning.text for warning in loaded.warnings)


def test_ddmqs_fields_of_later_are_taken_at_their_defaults() -> None:
    """An exported subscription with idle push fields loads, and delivers as it did."""
    loaded = read(subscribed("httpMethod: POST\nurls:\nhttpMaxTps: -1\ntokenKey: ''\ntransit: {}"))

    assert loaded.warnings == []
    assert loaded.config == read(subscribed("")).config


def test_subscription_to_a_disabled_topic_rests_with_a_warning() -> None:
    """`enabled: false` of a topic reaches the subscriptions, and says so."""
    loaded = read(subscribed("").replace("{orders: }", "{orders: {enabled: false}}"))

    assert loaded.config.groups["billing"].enabled_topics == []
    assert [warning.path for warning in loaded.warnings] == ["groups[billing].topics[orders].topic"]


def test_dead_letters_of_an_unknown_group_are_a_warning() -> None:
    """They may be left from an earlier group, or be a slip."""
    loaded = read("groups: [{group: billing}, {group: repair, topics: [{topic: '%DLQ%biling'}]}]")

    (warning,) = loaded.warnings
    assert "did you mean billing?" in warning.text
    assert read("groups: [{group: billing}, {group: r, topics: [{topic: '%DLQ%billing'}]}]").warnings == []


def test_load_without_actions_leaves_pipelines_unchecked() -> None:
    """A caller that knows no actions still gets the rest checked."""
    assert loads(subscribed("actions: [Whatever]")).config.groups["billing"].topics[0].actions == ["Whatever"]


def test_digest_tells_texts_apart() -> None:
    """Equal text has an equal digest, other text another."""
    assert read("node:").digest == read("node:").digest != read("node: ").digest


def test_load_absent_file_is_a_sentence(tmp_path: Path) -> None:
    """A file that cannot be read is a ConfigError like any other."""
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load(str(tmp_path / "none.yaml"))


def test_load_other_encoding_is_a_sentence(tmp_path: Path) -> None:
    """Bytes that are not UTF-8 name their line; a byte order mark is no error."""
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"node:\n  data: caf\xe9\n")
    with pytest.raises(ConfigError, match=r"latin\.yaml:2: is not UTF-8"):
        load(str(path))
    path.write_bytes(b"\xef\xbb\xbfnode:\n")
    assert load(path).config.node.host == "127.0.0.1"


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["topic", "group", "x"]), inner),
    max_leaves=5,
)
keys = st.sampled_from(["node", "topics", "groups", "topic", "group", "actions", "options", "orderKey", "urls", "host"])


@given(st.recursive(values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner), max_leaves=12))
def test_load_any_document_gives_a_configuration_or_problems(value: object) -> None:
    """No shape of document ends in anything but a configuration or sentences."""
    text = yaml.safe_dump(value)
    with suppress(ConfigError):
        assert read(text).warnings == read(text).warnings


def test_thousand_wrong_names_among_thousands_are_short_sentences() -> None:
    """The first ten say which was meant, and none lists all that there are: that took an hour, and gigabytes."""
    topics = "".join(f"  orders-{number}: {{}}\n" for number in range(1_000))
    subscribed = "".join(f"  - topic: order-{number}\n" for number in range(1_000))
    with pytest.raises(ConfigError) as found:
        read(f"topics:\n{topics}groups:\n- group: g\n  topics:\n{subscribed}")
    problems = [each.text for each in found.value.problems if "is not in topics" in each.text]
    assert len(problems) == 1_000
    assert sum("did you mean orders-" in each for each in problems) == 10
    assert max(map(len, problems)) < 500
    assert problems[0].endswith(" and 980 more")
