"""Certificate authorities of tests: EC keys, and every way in which a certificate can be wrong."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

HOUR = timedelta(hours=1)


@cache
def now() -> datetime:
    """The moment around which all of a run's certificates are made."""
    return datetime.now(UTC).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class Issued:
    """A certificate with its key, as objects."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> bytes:
        """The certificate in PEM."""
        return self.certificate.public_bytes(serialization.Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key in PEM."""
        return self.key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    @property
    def not_after_ms(self) -> int:
        """When it expires."""
        return int(self.certificate.not_valid_after_utc.timestamp() * 1000)

    def write(self, folder: Path, name: str) -> tuple[str, str]:
        """Write `name.crt` and `name.key`; returns their paths."""
        folder.mkdir(parents=True, exist_ok=True)
        paths = folder / f"{name}.crt", folder / f"{name}.key"
        for path, content in zip(paths, (self.pem, self.key_pem), strict=True):
            part = path.with_suffix(f"{path.suffix}.part")
            part.write_bytes(content)
            part.replace(path)
        return str(paths[0]), str(paths[1])


class Authority:
    """A CA; one of a name differs from another of the same name."""

    def __init__(self, name: str = "test-ca") -> None:
        self.own = _issue(name, None, ca=True, begins=-24 * HOUR, ends=240 * HOUR)

    def issue(
        self,
        name: str,
        *,
        begins: timedelta = -HOUR,
        ends: timedelta = 24 * HOUR,
        names: tuple[str, ...] = ("localhost",),
        usage: str = "",
    ) -> Issued:
        """Issue a certificate; `usage`: "server" or "client" alone, both when empty."""
        return _issue(name, self.own, begins=begins, ends=ends, names=names, usage=usage)

    def revoke(self, *revoked: Issued, ends: timedelta = 24 * HOUR, others: int = 0) -> bytes:
        """Return a revocation list in PEM; with so many serial numbers of others."""
        builder = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.own.certificate.subject)
            .last_update(now() - 2 * HOUR)
            .next_update(now() + ends)
        )
        for serial in (*range(1, others + 1), *(each.certificate.serial_number for each in revoked)):
            builder = builder.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now() - HOUR).build()
            )
        return builder.sign(self.own.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _issue(
    name: str,
    by: Issued | None,
    *,
    begins: timedelta,
    ends: timedelta,
    ca: bool = False,
    names: tuple[str, ...] = (),
    usage: str = "",
) -> Issued:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Test"), x509.NameAttribute(NameOID.COMMON_NAME, name)]
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now() + begins)
        .not_valid_after(now() + ends)
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    )
    if not ca:
        others: list[x509.GeneralName] = [x509.DNSName(each) for each in names]
        others.append(x509.UniformResourceIdentifier(f"spiffe://test/{name}"))
        if names == ("localhost",):
            others.append(x509.IPAddress(ip_address("127.0.0.1")))
        builder = builder.add_extension(x509.SubjectAlternativeName(others), critical=False)
    if usage:
        purpose = ExtendedKeyUsageOID.SERVER_AUTH if usage == "server" else ExtendedKeyUsageOID.CLIENT_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
    return Issued(builder.sign(key if by is None else by.key, hashes.SHA256()), key)
