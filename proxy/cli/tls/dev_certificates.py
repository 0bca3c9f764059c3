"""A CA and certificates for trying TLS: made at once, good for this machine, and for nothing that others rely on.

The CA's key is beside the certificates: the folder suffices to impersonate any client.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

FILES = ("ca.crt", "ca.key", "node.crt", "node.key", "client.crt", "client.key")
CA_DAYS = 825
BEFORE = timedelta(minutes=5)
"""Clocks of other machines may be a little behind."""


@dataclass(frozen=True, slots=True)
class _Made:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def make(folder: Path, *, names: tuple[str, ...], client: str, days: int) -> None:
    """Write the files of `FILES`, keys for their owner alone; files of these names are replaced.

    Args:
        folder: Made where it is not there, for its owner alone.
        names: DNS names and addresses of the node.
        client: Common name of the client's certificate.
        days: How long the two certificates are good; the CA for `CA_DAYS` or longer.

    Raises:
        OSError: A file cannot be written.
    """
    now = datetime.now(UTC).replace(microsecond=0)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = _make("pyddmq development CA", None, now=now, days=max(CA_DAYS, days))
    node = _make("pyddmq node", authority, now=now, days=days, names=names)
    worker = _make(client, authority, now=now, days=days)
    for name, made in (("ca", authority), ("node", node), ("client", worker)):
        _write(folder / f"{name}.crt", made.certificate.public_bytes(serialization.Encoding.PEM), 0o644)
        key = made.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        _write(folder / f"{name}.key", key, 0o600)


def _make(name: str, by: _Made | None, *, now: datetime, days: int, names: tuple[str, ...] | None = None) -> _Made:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer = subject if by is None else by.certificate.subject
    issuer_key = key if by is None else by.key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - BEFORE)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=by is None, path_length=0 if by is None else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False)
        .add_extension(_usage(of_ca=by is None), critical=True)
    )
    if by is not None:
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if names is None else ExtendedKeyUsageOID.SERVER_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([_name(each) for each in names]), critical=False)
    return _Made(builder.sign(issuer_key, hashes.SHA256()), key)


def _usage(*, of_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not of_ca,
        key_cert_sign=of_ca,
        crl_sign=of_ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(text))
    except ValueError:
        return x509.DNSName(text)


def _write(path: Path, content: bytes, mode: int) -> None:
    """Replace a file whole; a key is never there with another mode."""
    part = path.with_name(f"{path.name}.part")
    part.unlink(missing_ok=True)
    with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
    part.replace(path)
