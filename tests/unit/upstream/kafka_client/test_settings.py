"""What librdkafka is told, and that it tells no secret."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import structlog

from broker.runtime.seams import SystemClock
from conf.secrets import Secret, SecretUnreadable
from conf.sections.kafka import KafkaClusterConfig
from pyddmq.testing import ManualClock
from tests.kafka_world import Loop
from upstream.kafka_client.client import LibrdkafkaClient
from upstream.kafka_client.package import KafkaUnusable
from upstream.kafka_client.settings import LogLines, Settings

CLOCK = ManualClock()
PASSWORD = "correct horse"


def settings(tmp_path: Path, **librdkafka: object) -> Settings:
    """Settings with a password in a file."""
    (tmp_path / "password").write_text(PASSWORD + "\n")
    given = {"sasl.password": Secret(file=str(tmp_path / "password")), **librdkafka}
    return Settings("main", KafkaClusterConfig.model_validate({"bootstrapServers": "a:1", "librdkafka": given}), CLOCK)


def test_secret_is_in_no_text(tmp_path: Path) -> None:
    """Not in a name for people, a log line, or what is raised when a setting is refused."""
    found = settings(tmp_path, **{"security.protocol": PASSWORD})
    assert PASSWORD not in repr(found)
    with pytest.raises(KafkaUnusable) as refused:
        found.consumer("g", "c", "classic")
    assert "librdkafka rejects the settings of main" in str(refused.value)
    assert "***" in str(refused.value)
    assert PASSWORD not in str(refused.value)
    assert refused.value.__cause__ is None
    assert refused.value.__context__ is None
    with structlog.testing.capture_logs() as lines:
        LogLines("main", found.hide, CLOCK).log(30, "%s [%s] %s", "FAIL", "rdkafka", f"refused {PASSWORD}")
    [line] = lines
    assert (line["event"], line["kind"], line["text"], line["log_level"]) == (
        "kafka_client_said", "FAIL", "refused ***", "warning"
    )  # fmt: skip


def test_broker_that_is_back_is_found_within_a_second(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By consumers and producers, unless the configuration says otherwise."""
    made: list[dict[str, object]] = []
    monkeypatch.setattr(Settings, "_make", lambda self, kind, given: made.append(given))
    for found in (settings(tmp_path), settings(tmp_path, **{"reconnect.backoff.max.ms": 5_000})):
        found.consumer("g", "c", "classic")
        found.producer("c")
    assert [each["reconnect.backoff.max.ms"] for each in made] == [1_000, 1_000, 5_000, 5_000]


def _given_to_the_producer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **librdkafka: object) -> dict[str, object]:
    made: list[dict[str, object]] = []
    monkeypatch.setattr(Settings, "_make", lambda self, kind, given: made.append(given))
    settings(tmp_path, **librdkafka).producer("c")
    return made[0]


def test_producer_leaves_the_limit_of_a_record_to_the_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Librdkafka's own limit of 1,000,000 bytes is raised to its maximum, unless the configuration has another."""
    assert _given_to_the_producer(tmp_path, monkeypatch)["message.max.bytes"] == 1_000_000_000
    limited = _given_to_the_producer(tmp_path, monkeypatch, **{"message.max.bytes": 5_000})
    assert limited["message.max.bytes"] == 5_000


def test_producer_creates_no_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A deleted topic is not created again by a refresh of metadata, whatever the brokers allow."""
    assert _given_to_the_producer(tmp_path, monkeypatch)["allow.auto.create.topics"] == "false"


def test_one_line_of_a_kind_in_a_minute() -> None:
    """A cluster that is away would fill the log; what was left out is counted in the next line."""
    clock = ManualClock()
    logger = LogLines("main", str, clock)
    with structlog.testing.capture_logs() as lines:
        for _ in range(200):
            logger.log(30, "%s [%s] %s", "FAIL", "rdkafka", "refused")
        logger.log(30, "%s [%s] %s", "GETPID", "rdkafka", "another kind")
        clock.advance(61)
        logger.log(30, "%s [%s] %s", "FAIL", "rdkafka", "refused again")
    assert [(line["kind"], line["left_out"]) for line in lines] == [("FAIL", 0), ("GETPID", 0), ("FAIL", 199)]


def test_each_line_of_a_key_is_hidden(tmp_path: Path) -> None:
    """A PEM may be shown in part."""
    (tmp_path / "key").write_text("-----BEGIN KEY-----\nMIIEvQIBADANBg\n-----END KEY-----\n")
    found = settings(tmp_path, **{"ssl.key.pem": Secret(file=str(tmp_path / "key"))})
    assert found.hide("line MIIEvQIBADANBg of it") == "line *** of it"


def test_secret_that_is_not_there_is_told() -> None:
    """Where it should be."""
    config = KafkaClusterConfig(bootstrap_servers="a:1", librdkafka={"sasl.password": Secret(file="/nowhere/p")})
    with pytest.raises(SecretUnreadable, match="file /nowhere/p cannot be read"):
        Settings("main", config, CLOCK)


def test_unknown_setting_is_told(tmp_path: Path) -> None:
    """In librdkafka's words, with the place in the configuration."""
    with pytest.raises(KafkaUnusable, match=r'No such configuration property: "fetch\.wait"; see kafka\.main'):
        settings(tmp_path, **{"fetch.wait": 1}).producer("c")


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_own_settings_are_taken_by_librdkafka(protocol: str) -> None:
    """For consumers of both protocols, readers and producers; truth values are written as it wants them."""
    config = KafkaClusterConfig.model_validate(
        {"bootstrapServers": "127.0.0.1:1", "groupProtocol": protocol, "librdkafka": {"socket.nagle.disable": False}}
    )
    made = Settings("main", config, CLOCK)
    made.consumer("g", "c", protocol).close()
    made.reader("c").close()
    made.producer("c").flush(0)
    assert made.sent_seconds_max == 30


def test_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """That names what to install."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    config = KafkaClusterConfig(bootstrap_servers="a:1")
    with pytest.raises(KafkaUnusable, match=r"need the package confluent-kafka .*: pip install 'pyddmq\[kafka\]'"):
        LibrdkafkaClient("main", config, client_id="c", loop=Loop(), clock=SystemClock())


class Refused:
    """An error of librdkafka's: the user is not known."""

    def name(self) -> str:
        """Its code."""
        return "_AUTHENTICATION"

    def str(self) -> str:
        """Its text."""
        return "SASL authentication error"


class Package:
    """Clients that remember their settings and credentials."""

    KafkaException = RuntimeError

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.given: list[tuple[int, str, str]] = []

    def Producer(self, settings: dict[str, Any], *, logger: object) -> Any:
        """Return one."""
        number = len(self.made)
        self.made.append(settings)
        return SimpleNamespace(set_sasl_credentials=lambda *pair: self.given.append((number, *pair)))


def test_password_that_was_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each client whose user is refused, once; the new one is as hidden as the old one."""
    package = Package()
    monkeypatch.setattr("upstream.kafka_client.settings.confluent", lambda: package)
    found = settings(tmp_path, **{"sasl.username": "node"})
    heard: list[object] = []
    clients = [found.producer("a", error_cb=heard.append), found.producer("b")]
    package.made[0]["error_cb"](Refused())
    assert package.given == []
    (tmp_path / "password").write_text("battery staple\n")
    for _ in range(2):
        package.made[0]["error_cb"](Refused())
        package.made[1]["error_cb"](Refused())
    assert package.given == [], "not within a callback"
    for _ in range(2):
        for each in clients:
            found.give_password(each)
    assert package.given == [(0, "node", "battery staple"), (1, "node", "battery staple")]
    assert len(heard) == 3
    assert found.hide(f"{PASSWORD}, battery staple") == "***, ***"
    found.producer("c")
    assert package.made[2]["sasl.password"] == "battery staple"
    (tmp_path / "password").unlink()
    package.made[2]["error_cb"](Refused())
    assert len(package.given) == 2


def test_consumers_and_readers_read_committed_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of waiting messages that were aborted are delivered to no group, and found by no search."""
    made: list[dict[str, object]] = []
    monkeypatch.setattr(Settings, "_make", lambda self, kind, given: made.append(given))
    settings(tmp_path).consumer("g", "c", "classic")
    settings(tmp_path).reader("c")
    assert [each["isolation.level"] for each in made] == ["read_committed", "read_committed"]
