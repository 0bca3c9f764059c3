"""Contexts made of files: what cannot be used is told by name, and what is made takes nothing back."""

from __future__ import annotations

import ssl
from pathlib import Path
from time import process_time
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

from bench.tls import channel_us
from conf.sections.tls import TlsFiles
from proxy.cli.tls.dev_certificates import make
from proxy.tls.files import RealTlsFiles, TlsFileBad
from proxy.tls.handshakes import Handshakes
from pyddmq.testing import ManualClock, ManualScheduler
from tests.tls.conftest import Certificates


def files(certificates: Certificates, **changed: str) -> TlsFiles:
    """The files of a port that asks for certificates."""
    given = {
        "certificate": certificates.node_files[0],
        "key": certificates.node_files[1],
        "client_certificates": "required",
        "client_ca": certificates.ca,
    }
    return TlsFiles(**{**given, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["certificate", "key", "client_ca", "crl"])
@pytest.mark.parametrize(
    ("content", "said"), [(None, r"cannot be read \(No such file or directory\)"), (b"", "PEM"), (b"\xff" * 99, "PEM")]
)
def test_bad_file_is_named_with_what_would_be_right(
    certificates: Certificates, tmp_path: Path, field: str, content: bytes | None, said: str
) -> None:
    """Each of them, absent, empty or something else."""
    path = tmp_path / "file"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(TlsFileBad, match=f"^{path}: .*{said}") as refused:
        RealTlsFiles().build(files(certificates, **{field: str(path)}))
    assert (refused.value.field, refused.value.path) == (field, str(path))


def test_certificate_beside_a_revocation_list_makes_no_ca(certificates: Certificates, tmp_path: Path) -> None:
    """OpenSSL takes both out of one file, and would trust the clients of a CA that `clientCa` does not have."""
    path = tmp_path / "crl"
    lists = certificates.authority.revoke() + certificates.foreign.revoke()
    path.write_bytes(lists)
    context = RealTlsFiles().build(files(certificates, crl=str(path))).context
    assert len(context.get_ca_certs()) == 1
    path.write_bytes(lists + certificates.foreign.own.pem)
    with pytest.raises(TlsFileBad, match="contains certificates, whose clients would be let in") as refused:
        RealTlsFiles().build(files(certificates, crl=str(path)))
    assert refused.value.field == "crl"


def test_many_clients_are_looked_for_in_a_long_revocation_list(certificates: Certificates, tmp_path: Path) -> None:
    """A new list is compared with all who are connected: no look goes through all of it."""
    path = tmp_path / "crl"
    authority = certificates.authority
    clients = [authority.issue("client").certificate.public_bytes(serialization.Encoding.DER) for _ in range(20)]
    revoked = authority.issue("revoked")
    path.write_bytes(authority.revoke(revoked, others=10_000))
    context = RealTlsFiles().build(files(certificates, crl=str(path)))
    assert context.is_revoked(revoked.certificate.public_bytes(serialization.Encoding.DER))
    began = process_time()
    assert not any(context.is_revoked(each) for each in clients * 100)
    assert process_time() - began < 0.4


def test_key_of_another_certificate(certificates: Certificates) -> None:
    """The two come as a pair."""
    with pytest.raises(TlsFileBad, match="does not belong to the certificate in ") as refused:
        RealTlsFiles().build(files(certificates, key=certificates.client_files[1]))
    assert refused.value.field == "key"


def test_encrypted_key(certificates: Certificates, tmp_path: Path) -> None:
    """Nobody is asked for a passphrase on a terminal."""
    path = tmp_path / "node.key"
    secret = serialization.BestAvailableEncryption(b"secret")
    key = certificates.node.key
    path.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, secret))
    with pytest.raises(TlsFileBad, match="is encrypted, and the node has no passphrase"):
        RealTlsFiles().build(files(certificates, key=str(path)))


def test_what_a_context_is(certificates: Certificates) -> None:
    """No renegotiation, no compression, no old version; where certificates are asked for no tickets of either kind."""
    made = RealTlsFiles().build(files(certificates))
    context = made.context
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_NO_COMPRESSION
    assert context.options & ssl.OP_NO_TICKET
    assert context.num_tickets == 0
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert (context.verify_mode, made.asks) == (ssl.CERT_REQUIRED, True)
    assert (made.subject, made.not_after_ms) == ("CN=node,O=Test", certificates.node.not_after_ms)
    open_to_all = RealTlsFiles().build(files(certificates, client_certificates="none"))
    assert (open_to_all.context.verify_mode, open_to_all.asks) == (ssl.CERT_NONE, False)
    assert open_to_all.context.num_tickets > 0


def test_signature_tells_that_a_file_is_another(certificates: Certificates, tmp_path: Path) -> None:
    """Also when it goes, and with another of the same size."""
    paths = certificates.node.write(tmp_path, "node")
    given = files(certificates, certificate=paths[0], key=paths[1])
    seen = [RealTlsFiles().signature(given)]
    certificates.node.write(tmp_path, "node")
    seen.append(RealTlsFiles().signature(given))
    Path(paths[0]).unlink()
    seen.append(RealTlsFiles().signature(given))
    assert len(set(seen)) == 3


class Slow:
    """A connection whose steps take a while."""

    def __init__(self, clock: ManualClock, order: list[int], number: int) -> None:
        self.asked = False
        self._clock, self._order, self._number = clock, order, number

    def shake(self) -> None:
        self._order.append(self._number)
        self._clock.advance(0.0006)


def test_handshakes_leave_time_for_others() -> None:
    """Many that begin at once are made one by one in their order, and two thirds of the time are others'."""
    clock = ManualClock()
    scheduler = ManualScheduler(clock)
    order: list[int] = []
    handshakes = Handshakes(clock, scheduler)
    for number in range(5):
        slow: Any = Slow(clock, order, number)
        handshakes.ask(slow)
        handshakes.ask(slow)
    scheduler.run_until_idle()
    assert order == [0]
    for made in range(2, 6):
        scheduler.advance(0.0011)
        scheduler.run_until_idle()
        assert len(order) == made - 1
        scheduler.advance(0.0002)
        scheduler.run_until_idle()
        assert len(order) == made
    assert order == [0, 1, 2, 3, 4]


def test_bench_of_the_channel_runs(tmp_path: Path) -> None:
    """With the certificates that `pyddmq tls dev` makes."""
    make(tmp_path, names=("127.0.0.1",), client="bench", days=1)
    assert min(channel_us(tmp_path, 1000, 10)) > 0
