"""Secrets that are written where none belong are refused, and no error repeats them (D60, W66)."""

from __future__ import annotations

import pytest

from actions.registry import Registry
from tests.unit.conf_tools import refused

PLANTED = "sesame"
WRONG = [
    "actions: [Async, AsyncHttp]\nurls: ['http://me:sesame@10.0.0.1/hook']",
    "actions: [Async, AsyncHttp]\nurls: ['http://me:sesame@10.0.0.1:99999/hook']",
    "actions: [Async, AsyncHttp]\nurls: ['ftp://me:sesame@10.0.0.1/hook']",
    "actions: [Async, AsyncHttp]\nurls: ['http://me:sesame@10.0.0.1/ho ok']",
    "actions: [Async, AsyncHttp]\nurls: [http://h/]\noptions: {AsyncHttp: {headers: {Authorization: sesame}}}",
    "actions: [Async, AsyncHttp]\nurls: [http://h/]\noptions: {AsyncHttp: {headers: {X-Api-Key: sesame}}}",
    "actions: [Async, AsyncHttp]\nurls: [http://h/]\noptions: {AsyncHttp: {headers: {X: ' sesame'}}}",
    "actions: [Async, AsyncHttp]\nurls: [http://h/]\noptions: {AsyncHttp: {signature: {keyId: k, secret: sesame}}}",
    "actions: [Async, Redis]\noptions: {Redis: {hosts: ['redis://:sesame@127.0.0.1:6379']}}",
    "actions: [Async, Redis]\noptions: {Redis: {hosts: ['127.0.0.1:6379'], password: sesame}}",
    "actions: [Async, HBase]\noptions: {HBase: {hosts: ['me:sesame@127.0.0.1:9090']}}",
    "actions: [Async, File]\noptions: {File: {url: 's3://AKIA:sesame@bucket/folder'}}",
    "actions: [Async, File]\noptions: {File: {url: 's3://b/f', accessKey: a, secretKey: sesame}}",
    "actions: [Async, File]\noptions: {File: {url: 's3://b/f', endpoint: 'http://me:sesame@h'}}",
    "actions: [Async, Hdfs]\noptions: {Hdfs: {urls: ['http://me:sesame@h:9870'], rootPath: /r, userName: u}}",
    "actions: [Async, Hdfs]\noptions: {Hdfs: {urls: ['http://h:9870'], rootPath: /r, userName: u, token: sesame}}",
    "actions: [Json, FormParams, PullServer]\ntokenKey: sesame",
    "actions: [Json, FormParams2, PullServer]\noptions: {FormParams2: {tokenKey: sesame}}",
    "redisConfig: {host: 'redis://:sesame@h', password: sesame}",
]
TOP = [
    "kafka: {main: {bootstrapServers: 'me:sesame@h'}}",
    "kafka: {main: {bootstrapServers: 'h:9092', librdkafka: {sasl.password: sesame}}}",
    "kafka: {main: {bootstrapServers: 'h:9092', librdkafka: {ssl.key.password: sesame}}}",
    "kafka: {main: {bootstrapServers: 'h:9092', librdkafka: {sasl.jaas.config: 'x password=sesame;'}}}",
    "lag: {webhook: 'https://me:sesame@h/lag'}",
    "lag: {webhook: 'ftp://me:sesame@h/lag'}",
]


@pytest.mark.parametrize("lines", WRONG)
def test_secret_in_a_subscription_is_refused_and_not_repeated(lines: str) -> None:
    """Each error says where a secret belongs, or what is wrong, without it."""
    inner = "".join(f"        {line}\n" for line in lines.splitlines())
    said = refused(
        f"topics: {{t: {{}}}}\ngroups:\n  - group: g\n    topics:\n      - topic: t\n{inner}", actions=Registry()
    )
    assert PLANTED not in said
    assert said


@pytest.mark.parametrize("line", TOP)
def test_secret_at_the_top_is_refused_and_not_repeated(line: str) -> None:
    """So it is with clusters and the webhook."""
    assert PLANTED not in refused(f"{line}\ntopics: {{t: {{}}}}\n", actions=Registry())
