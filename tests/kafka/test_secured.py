"""TLS and users at a real, secured Kafka: what works, what is said where it does not, and that no secret shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from proxy.cli.app import run
from pyddmq import Consumer, Producer
from tests.kafka.nodes import NodeProcess
from tests.kafka.secured import PASSWORDS, USER, SecuredKafka, authority
from tests.kafka.topics import make_topic, topic_names
from tests.kafka_world import Clients
from tests.patient import until
from upstream.kafka.link import KafkaFailure

pytestmark = pytest.mark.long

WRONG = "wrong-sesame-3"
PAGES = ("/", "/api/attention", "/api/groups", "/api/topics", "/api/offsets", "/metrics", "/api/lag")


@pytest.fixture(scope="module")
def secured(jars: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """One for all tests of the file."""
    kafka = SecuredKafka(tmp_path_factory.mktemp("secured") / "kafka", Path(jars))
    try:
        kafka.start()
        make_topic(kafka.address, "permits", 2, {})
        yield kafka
    finally:
        kafka.kill()


def settings(secured: SecuredKafka, mechanism: str, secret: Any) -> dict[str, Any]:
    """As under `librdkafka`."""
    found: dict[str, Any] = {
        "security.protocol": "sasl_ssl",
        "ssl.ca.location": str(secured.ca),
        "sasl.mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        return {**found, "enable.sasl.oauthbearer.unsecure.jwt": True, "sasl.oauthbearer.config": secret}
    return {**found, "sasl.username": USER, "sasl.password": secret}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_member_and_producer_come_in(secured: SecuredKafka, mechanism: str, tmp_path: Path) -> None:
    """By each mechanism, over TLS; the secret from a file."""
    (tmp_path / "secret").write_text(PASSWORDS.get(mechanism, f"principal={USER}") + "\n")
    clients = Clients(secured.secure)
    try:
        librdkafka = settings(secured, mechanism, {"file": str(tmp_path / "secret")})
        member, heard = clients.joined(f"in-{mechanism}", ["permits"], librdkafka=librdkafka)
        sent: list[KafkaFailure | None] = []
        producer = clients.client(librdkafka=librdkafka).producer()
        producer.produce("permits", 0, None, mechanism.encode(), (), lambda failure, *_: sent.append(failure))
        clients.until(lambda: sent and mechanism.encode() in heard.values(), "the record")
        assert sent == [None]
        producer.close(5)
        clients.leave(member)
    finally:
        clients.end()


@pytest.mark.parametrize(("wrong", "code"), [("password", "AUTHENTICATION"), ("authority", "SSL")])
def test_record_ends_by_the_reason_for_which_the_connection_is_refused(
    secured: SecuredKafka, wrong: str, code: str, tmp_path: Path
) -> None:
    """Within some seconds, and as one that is known not to be stored."""
    (tmp_path / "secret").write_text(WRONG if wrong == "password" else PASSWORDS["PLAIN"])
    librdkafka = settings(secured, "PLAIN", {"file": str(tmp_path / "secret")})
    if wrong == "authority":
        librdkafka["ssl.ca.location"] = str(authority(tmp_path, "other"))
    clients = Clients(secured.secure)
    try:
        producer = clients.client(librdkafka=librdkafka).producer()
        ended: list[KafkaFailure | None] = []
        producer.produce("permits", 0, None, b"x", (), lambda failure, *_: ended.append(failure))
        began = time.monotonic()
        clients.until(lambda: ended, "the reason")
        assert time.monotonic() - began < 20
        assert ended[0] is not None
        assert (ended[0].code, ended[0].unknown) == (code, False)
        producer.close(1)
    finally:
        clients.end()


def test_password_that_is_mended_is_taken_without_a_restart(secured: SecuredKafka, tmp_path: Path) -> None:
    """The file is read again while the user is refused: the member joins, and the producer sends."""
    (tmp_path / "secret").write_text(WRONG)
    librdkafka = settings(secured, "PLAIN", {"file": str(tmp_path / "secret")})
    clients = Clients(secured.secure)
    try:
        client = clients.client(librdkafka=librdkafka)
        member, heard = clients.join("mended", ["permits"], librdkafka=librdkafka)
        producer = client.producer()
        clients.until(lambda: heard.troubles, "the refusal")
        (tmp_path / "secret").write_text(PASSWORDS["PLAIN"])
        clients.until(lambda: heard.given, "partitions")
        clients.until(lambda: producer.partitions("permits") == 2, "the topic")
        sent: list[KafkaFailure | None] = []
        producer.produce("permits", 0, None, b"mended", (), lambda failure, *_: sent.append(failure))
        clients.until(lambda: sent, "the report")
        assert sent == [None]
        producer.close(5)
        clients.leave(member)
    finally:
        clients.end()


_CONFIG = """
node: {{producerPort: 0, consumerPort: 0, adminPort: 0, data: {folder}/data}}
kafka:
  good:
    bootstrapServers: {secure}
    membership: always
    sessionTimeout: 6000
    librdkafka: {{security.protocol: sasl_ssl, ssl.ca.location: {ca}, sasl.mechanism: SCRAM-SHA-512,
      sasl.username: {user}, sasl.password: {{env: KAFKA_PASSWORD}}}}
  password:
    bootstrapServers: {secure}
    membership: always
    librdkafka: {{security.protocol: sasl_ssl, ssl.ca.location: {ca}, sasl.mechanism: PLAIN, sasl.username: {user},
      sasl.password: {{file: {folder}/wrong}}}}
  authority:
    bootstrapServers: {secure}
    membership: always
    librdkafka: {{security.protocol: sasl_ssl, ssl.ca.location: {other}, sasl.mechanism: PLAIN, sasl.username: {user},
      sasl.password: {{env: KAFKA_PASSWORD}}}}
  host:
    bootstrapServers: {elsewhere}
    membership: always
    librdkafka: {{security.protocol: ssl, ssl.ca.location: {ca}}}
topics:
  permits: {{brokerCluster: good}}
  one: {{brokerCluster: password}}
  two: {{brokerCluster: authority}}
  three: {{brokerCluster: host}}
groups:
  - {{group: g-good, topics: [{{topic: permits, orderKey: KEY}}]}}
  - {{group: g-password, topics: [{{topic: one}}]}}
  - {{group: g-authority, topics: [{{topic: two}}]}}
  - {{group: g-host, topics: [{{topic: three}}]}}
"""
SENTENCES = {
    "g-password": "the cluster rejects the user; check sasl.mechanism, sasl.username and sasl.password",
    "g-authority": "the broker's certificate is rejected: no CA in ssl.ca.location issued it",
    "g-host": "the broker's certificate is rejected: no CA in ssl.ca.location issued it",
}


def test_node_says_what_is_wrong_and_never_a_secret(secured: SecuredKafka, tmp_path: Path) -> None:
    """One group works; of each other one sentence is in the log and one is a finding."""
    (tmp_path / "wrong").write_text(WRONG)
    text = _CONFIG.format(
        folder=tmp_path, secure=secured.secure, elsewhere=secured.elsewhere, ca=secured.ca, user=USER,
        other=authority(tmp_path, "other"),
    )  # fmt: skip
    node = NodeProcess(tmp_path, "n", text=text, env={"KAFKA_PASSWORD": PASSWORDS["SCRAM-SHA-512"]})

    def page(path: str) -> str:
        with urlopen(f"http://{node.admin}{path}", timeout=60) as answer:
            return str(answer.read().decode())

    def findings() -> list[str]:
        found = json.loads(page("/api/attention"))["findings"]
        return [each["text"] for each in found if each["finding"] == "kafka_trouble"]

    try:
        with Producer(node.producers, timeout_ms=60_000) as producer:
            producer.send("permits", b"by a user", key="k")
        with Consumer(node.consumers, "g-good", timeout_ms=20_000) as consumer:
            bodies: list[bytes] = []
            while b"by a user" not in bodies:
                for message in consumer.pull(patience_ms=1000):
                    bodies.append(message.body)
                    consumer.ack(message)
        until(lambda: all(any(group in each for each in findings()) for group in SENTENCES), "three findings")
        for group, sentence in SENTENCES.items():
            [finding] = [each for each in findings() if group in each]
            assert sentence in finding, finding
            lines = [line for line in node.log().splitlines() if "kafka_trouble" in line and f'"{group}"' in line]
            assert len([line for line in lines if sentence in line]) == 1, lines
        assert not any("g-good" in each for each in findings())
        shown = node.log() + "".join(page(each) for each in PAGES)
        for secret in (WRONG, *PASSWORDS.values()):
            assert secret not in shown
        node.stop()
        assert node.process.returncode == 0, node.log()[-2000:]
    finally:
        node.kill()


def test_commands_say_what_is_wrong(
    secured: SecuredKafka, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lag record` by the clusters of a node's configuration."""
    (tmp_path / "wrong").write_text(WRONG)
    monkeypatch.setenv("KAFKA_PASSWORD", PASSWORDS["SCRAM-SHA-512"])
    config = tmp_path / "node.yaml"
    config.write_text(
        _CONFIG.format(
            folder=tmp_path, secure=secured.secure, elsewhere=secured.elsewhere, ca=secured.ca, user=USER,
            other=authority(tmp_path, "other"),
        )
    )  # fmt: skip
    command = ["lag", "record", "--once", "--config", str(config), "--kafka"]
    assert run([*command, "good", "--journal", str(tmp_path / "good")]) == 0
    for name, sentence in (("password", "rejects the user"), ("host", "for another host")):
        # A survey that is named by servers alone is asked for its name; so is this one for its groups.
        assert run([*command, name, "--journal", str(tmp_path / name)]) == 1
        said = capsys.readouterr()
        assert sentence in said.err, said
        assert WRONG not in said.err + said.out
    assert "permits" in topic_names(secured.address)
