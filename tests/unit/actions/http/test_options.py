"""What the configuration says of a push, in its own names and in DDMQ's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from actions.registry import Registry
from conf.loader import loads
from conf.problems import ConfigError
from conf.secrets import Secret, SecretUnreadable


def load(**subscription: Any) -> Any:
    """The subscription of a file with these fields."""
    entry = {"topic": "orders", "actions": ["Async", "AsyncHttp"], **subscription}
    text = yaml.safe_dump({"topics": {"orders": {}}, "groups": [{"group": "g", "topics": [entry]}]}, sort_keys=False)
    return loads(text, actions=Registry()).config.groups["g"].topics[0]


def problems(**subscription: Any) -> str:
    """What is said of a file with these fields."""
    with pytest.raises(ConfigError) as refused:
        load(**subscription)
    return "\n".join(str(each) for each in refused.value.problems)


def test_fields_of_ddmqs_topic_are_taken_for_options() -> None:
    """A subscription of DDMQ's works as it stands."""
    subscription = load(urls=["http://a:1/x"], httpMethod="get", httpMaxTps=5)
    [_, action] = Registry().make(subscription)
    options: Any = action.options
    assert (options.urls, options.http_method, options.http_max_tps) == (["http://a:1/x"], "GET", 5)


def test_field_of_ddmqs_and_its_option_are_not_both_given() -> None:
    """One of them would silently lose."""
    text = problems(urls=["http://a/"], options={"AsyncHttp": {"urls": ["http://b/"]}})
    assert "topics[orders].urls: is also given as options.AsyncHttp.urls; keep options.AsyncHttp.urls" in text


def test_field_of_ddmqs_without_the_action_is_said_so() -> None:
    """Nothing would be pushed."""
    text = problems(actions=["Async", "PullServer"], urls=["http://a/"])
    assert "urls: would have no effect: it is the option `urls` of AsyncHttp, which the pipeline does not have" in text
    assert load(actions=["Async", "PullServer"], httpMethod="POST", httpMaxTps=-1)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"urls": []}, "AsyncHttp needs options: urls"),
        ({"urls": ["ftp://a/"]}, "urls[0]: 'ftp://a/' is not a valid push URL"),
        ({"urls": ["http://"]}, "is not a valid push URL"),
        ({"urls": ["http://u:p@a/"]}, "a URL with a user shows its password"),
        ({"urls": ["http://a/ b"]}, "has a character that is not allowed in URLs"),
        ({"urls": ["http://a/#x"]}, "has a fragment"),
        ({"urls": ["http://a/", "http://a/"]}, "a URL is listed twice"),
        ({"urls": ["http://a/"], "httpMethod": "PUT"}, "httpMethod: input should be 'POST' or 'GET'"),
        ({}, "actions[1]: AsyncHttp needs options: urls; write them under options, as AsyncHttp: {...}"),
    ],
)
def test_wrong_option_is_named_where_it_stands(fields: dict[str, Any], said: str) -> None:
    """With file, line and key, whichever way it is written."""
    text = problems(**fields)
    assert said in text
    assert "<text>:" in text


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"headers": {"X-A": "1\n2"}}, "is not a valid header value"),
        ({"headers": {"Host": "x"}}, "Host is set by the node itself"),
        ({"headers": {"X A": "x"}}, "is not a valid header name"),
        ({"messageHeaders": ["*"]}, "is not a valid header name"),
        ({"messageHeaders": ["Authorization"]}, "is a header that messages may not set"),
        ({"messageHeaders": ["Proxy-*"]}, "is a header that messages may not set"),
        ({"callback": {"origins": ["a"]}}, "'a' is not a valid origin"),
        ({"callback": {"origins": ["http://a"], "networks": ["10.0.0.1/8"]}}, "is not a valid block of addresses"),
        ({"callback": {}}, "callback.origins: is absent; add `origins: ...`"),
        ({"signature": {"keyId": "a b", "secret": {"env": "X"}}}, "is not a valid key id"),
        ({"signature": {"keyId": "a", "secret": "hunter2"}}, "secrets are not allowed in this file"),
        ({"signature": {"keyId": "a", "secret": {"env": "X", "file": "y"}}}, "a secret has one source"),
        ({"connections": 0}, "greater than or equal to 1"),
        ({"url": ["http://a"]}, "is not an option; did you mean urls?"),
    ],
)
def test_wrong_value_says_what_is_right(options: dict[str, Any], said: str) -> None:
    """And a secret that was written by mistake is not shown."""
    text = problems(options={"AsyncHttp": {"urls": ["http://a/"], **options}})
    assert said in text
    assert "hunter2" not in text


def test_secret_is_read_where_it_stands_and_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D60."""
    monkeypatch.setenv("PUSH_SECRET", "hunter2")
    file = tmp_path / "secret"
    file.write_text("hunter3\n")
    for secret, value in ((Secret(env="PUSH_SECRET"), "hunter2"), (Secret(file=str(file)), "hunter3")):
        assert secret.read() == value
        assert (repr(secret), str(secret), f"{secret}") == ("***", "***", "***")
    subscription = load(options={"AsyncHttp": {"urls": ["http://a/"], "headers": {"X-Key": {"env": "PUSH_SECRET"}}}})
    assert "hunter2" not in repr(subscription)


def test_secret_that_is_not_there_is_said_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its place, and why."""
    monkeypatch.delenv("PUSH_SECRET", raising=False)
    monkeypatch.setenv("EMPTY_SECRET", "")
    (tmp_path / "latin").write_bytes(b"\xff\n")
    (tmp_path / "long").write_bytes(b"x" * 70_000)
    for secret, why in (
        (Secret(env="PUSH_SECRET"), "environment variable PUSH_SECRET is not set"),
        (Secret(env="EMPTY_SECRET"), "is empty"),
        (Secret(file=str(tmp_path / "none")), "cannot be read (No such file or directory)"),
        (Secret(file=str(tmp_path)), "cannot be read (Is a directory)"),
        (Secret(file=str(tmp_path / "latin")), "is not UTF-8"),
        (Secret(file=str(tmp_path / "long")), "is longer than 65536 bytes"),
    ):
        with pytest.raises(SecretUnreadable) as missing:
            secret.read()
        assert why in str(missing.value)
