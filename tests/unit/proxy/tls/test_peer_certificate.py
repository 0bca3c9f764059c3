"""What is read of a client's certificate."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.tls.peer_certificate import PeerCertificate, peer_certificate


def reported(**changed: Any) -> dict[str, Any]:
    """Return what OpenSSL tells of a certificate."""
    return {
        "subject": (
            (("organizationName", "Example"),),
            (("organizationalUnitName", "billing"),),
            (("commonName", "worker-1"),),
        ),
        "subjectAltName": (
            ("DNS", "worker-1.example"),
            ("IP Address", "10.0.0.1"),
            ("URI", "spiffe://example/worker"),
            ("email", "ops@example"),
        ),
        "serialNumber": "2A",
        "notAfter": "Jan  1 00:00:10 1970 GMT",
        **changed,
    }


def test_all_that_a_rule_may_name_is_there() -> None:
    """Subject, names of three kinds, common name, serial, end."""
    assert peer_certificate(reported()) == PeerCertificate(
        subject="CN=worker-1,OU=billing,O=Example",
        names=("DNS:worker-1.example", "URI:spiffe://example/worker", "email:ops@example"),
        common_name="worker-1",
        serial="2A",
        not_after_ms=10_000,
    )


def test_certificate_may_say_next_to_nothing() -> None:
    """An empty subject is one, without names."""
    bare = peer_certificate({"serialNumber": "1", "notAfter": "Jan  1 00:00:00 1970 GMT"})
    assert (bare.subject, bare.names, bare.common_name) == ("", (), None)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("a,O=root", "a\\,O\\=root"),
        ("a+CN=b", "a\\+CN\\=b"),
        ("\\", "\\\\"),
        (" a ", "\\ a\\ "),
        (" ", "\\ "),
        ("#1", "\\#1"),
        ("a\x00b\nc", "a\\00b\\0Ac"),
        ("Jürgen", "Jürgen"),
    ],
)
def test_no_value_passes_for_another_attribute(value: str, written: str) -> None:
    """RFC 4514, section 2.4: one who may choose a name can not write a subject that is somebody else's."""
    assert peer_certificate(reported(subject=((("commonName", value),),))).subject == f"CN={written}"


def test_attributes_of_one_step_are_joined() -> None:
    """RFC 4514, section 2.2; what has no short name keeps OpenSSL's."""
    subject = ((("commonName", "a"), ("serialNumber", "7")),)
    assert peer_certificate(reported(subject=subject)).subject == "CN=a+serialNumber=7"
