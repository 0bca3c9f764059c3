"""The section `tls`: what it takes, what is said of what it does not, and what a reload may change."""

from __future__ import annotations

import pytest

from conf import Config, ConfigError, TlsConfig, loads
from conf.diff import diff
from conf.sections.tls import TlsListenerConfig
from tests.unit.conf_tools import refused

PAIR = "certificate: a.crt, key: a.key"


def test_without_it_there_is_no_encrypted_port() -> None:
    """All is as before."""
    assert Config().tls.listeners() == {}


def test_port_has_what_stands_above_and_its_own() -> None:
    """Per port: certificate, key, and how clients are asked."""
    tls = loads(
        f"tls: {{{PAIR}, clientCertificates: optional, clientCa: ca.crt, crl: ca.crl, producer: {{port: 1}}, "
        "consumer: {port: 2, clientCertificates: required, clientCa: other.crt}, "
        "admin: {port: 3, clientCertificates: none, certificate: b.crt, key: b.key}}"
    ).config.tls
    producer, consumer, admin = (tls.files(name) for name in ("producer", "consumer", "admin"))
    assert (producer.certificate, producer.client_certificates, producer.client_ca) == ("a.crt", "optional", "ca.crt")
    assert (consumer.key, consumer.client_certificates, consumer.client_ca) == ("a.key", "required", "other.crt")
    assert consumer.crl == "ca.crl"
    assert (admin.certificate, admin.key, admin.client_ca, admin.crl) == ("b.crt", "b.key", None, None)
    assert (tls.place("consumer", "client_ca"), tls.place("consumer", "key")) == (("consumer", "clientCa"), ("key",))


@pytest.mark.parametrize(
    ("yaml", "said"),
    [
        ("tls: {producer: {}}", "tls.producer.port: is missing; add `port: ...`"),
        ("tls: {producer: {port: 1}}", "tls.producer: has no certificate; configure a PEM file as `tls.certificate`"),
        ("tls: {certificate: a, producer: {port: 1}}", "tls.producer: has no key"),
        (
            f"tls: {{{PAIR}, clientCertificates: required, producer: {{port: 1}}}}",
            "tls.producer: requests client certificates (required), and `tls.clientCa` is missing",
        ),
        (f"tls: {{{PAIR}, producer: {{port: 1, clientCa: c}}}}", "tls.producer.clientCa: is used only where"),
        (f"tls: {{{PAIR}, producer: {{port: 9613}}}}", "tls.producer.port: 9613 is also the port of node.producerPort"),
        (
            f"tls: {{{PAIR}, producer: {{port: 1}}, admin: {{port: 1}}}}",
            "tls.admin.port: 1 is also the port of tls.producer.port",
        ),
        (
            f"tls: {{{PAIR}, producer: {{port: 1, host: 0.0.0.0}}}}",
            "tls.producer.host: 0.0.0.0 is not a loopback address",
        ),
        ("tls: {minimumVersion: '1.1'}", "tls.minimumVersion"),
        ("tls: {clientCertificates: maybe}", "tls.clientCertificates"),
        ("node: {producerPort: null}", "node.producerPort: is null, and `tls.producer` is missing"),
        (f"node: {{adminPort: null}}\ntls: {{{PAIR}, producer: {{port: 1}}}}", "node.adminPort: is null"),
    ],
)
def test_what_cannot_be_is_said(yaml: str, said: str) -> None:
    """With the key, and what would be right."""
    assert said in refused(yaml)


def test_plain_ports_may_be_left_out() -> None:
    """Then the service is there by TLS alone."""
    ports = ", ".join(f"{name}: {{port: {number}}}" for number, name in enumerate(("producer", "consumer", "admin")))
    config = loads(
        f"node: {{producerPort: null, consumerPort: null, adminPort: null}}\ntls: {{{PAIR}, {ports}}}"
    ).config
    assert config.node.producer_port is None
    assert set(config.tls.listeners()) == {"producer", "consumer", "admin"}


def test_word_that_opens_the_thrift_ports_does_not_open_the_admin_port() -> None:
    """By TLS neither: rules do."""
    text = f"tls: {{{PAIR}, admin: {{port: 1, host: 0.0.0.0}}}}"
    with pytest.raises(ConfigError, match=r"tls\.admin\.host: 0\.0\.0\.0 is not a loopback address"):
        loads(f"node: {{access: open}}\n{text}")
    assert loads(f"access: {{rules: []}}\n{text}").config.tls.admin is not None


def test_open_listener_is_meant_where_it_is_said() -> None:
    """As for plain ports."""
    config = loads(f"node: {{access: open}}\ntls: {{{PAIR}, producer: {{port: 1, host: 0.0.0.0}}}}").config
    assert config.tls.listeners()["producer"].host == "0.0.0.0"


def test_listeners_and_names_of_files_need_a_restart() -> None:
    """What is in the files does not, and two bounds change at once (D22)."""
    old = Config(tls=TlsConfig(certificate="a", key="b", producer=TlsListenerConfig(port=1)))
    new = Config(tls=TlsConfig(certificate="c", key="b", handshake_timeout=5_000, expiry_warning_days=7))
    changes = diff(old, new)
    assert [".".join(each.path) for each in changes.refusals] == ["tls.certificate", "tls.producer"]  # type: ignore[arg-type]
    assert changes.sections["tls"] == ("handshakeTimeout", "expiryWarningDays")
    assert "tls.handshakeTimeout: changes at once" in changes.sentences()
