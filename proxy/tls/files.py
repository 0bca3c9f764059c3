"""Makes the context of a port of its files, whole or not at all.

A context is never changed once it is in force: what a handshake has begun with holds to its end, and sessions of an
older one mean nothing to a newer one. (Loading other certificates into a living context was tried: a client of the CA
that had been taken out resumed its session and was let in, and a key that did not fit left every later handshake
failing.)
"""

from __future__ import annotations

import hashlib
import os
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from conf.file_faults import file_fault
from conf.sections.tls import TlsFiles

CIPHERS_OF_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""For TLS 1.2: forward secret and authenticated, as all of 1.3 are."""
FILE_BYTES_MAX = 4 * 1024 * 1024
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
_MODES = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}

Signature = tuple[tuple[str, int, int, int], ...]
"""Of each file: path, inode, size, modification time; 0 where it is not there."""


class TlsFileBad(Exception):
    """A file cannot be used; the text names it and says why and what would be right.

    Attributes:
        field: The setting that names it: "certificate", "key", "client_ca", "crl".
        path: The file.
    """

    def __init__(self, field: str, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.field = field
        self.path = path


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsContext:
    """What a port shows and checks certificates by, from one reading of its files.

    Attributes:
        context: The context of `ssl`.
        asks: Whether clients are asked for certificates.
        subject: Of the node's own certificate, for people.
        not_after_ms: When that expires, epoch milliseconds.
        anchors: Of the client CAs: SHA-256 of each certificate.
        crls_expire_ms: When the first of the revocation lists expires, epoch milliseconds; None where there is none.
        is_revoked: Whether a list names a client's certificate (DER).
    """

    context: ssl.SSLContext
    asks: bool
    subject: str
    not_after_ms: int
    anchors: frozenset[bytes] = frozenset()
    crls_expire_ms: int | None = None
    is_revoked: Callable[[bytes], bool] = lambda _: False


class TlsLoader(Protocol):
    """Reads the files of a port."""

    def build(self, files: TlsFiles) -> TlsContext:
        """Make a context of what the files hold now. Raises TlsFileBad."""

    def signature(self, files: TlsFiles) -> Signature:
        """Return the identity of the files' state."""


class RealTlsFiles:
    """Files of the operating system."""

    def build(self, files: TlsFiles) -> TlsContext:
        """Make a context; see `TlsLoader.build`."""
        chain = _certificates("certificate", files.certificate)
        _check_key(files, chain[0])
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = _VERSIONS[files.minimum_version]
        context.set_ciphers(CIPHERS_OF_1_2)
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION | ssl.OP_CIPHER_SERVER_PREFERENCE
        try:
            context.load_cert_chain(files.certificate, files.key)
        except (OSError, ssl.SSLError) as error:
            raise TlsFileBad("certificate", files.certificate, f"OpenSSL rejects it: {_said(error)}") from error
        leaf = chain[0]
        facts = {"subject": leaf.subject.rfc4514_string(), "not_after_ms": _epoch_ms(leaf.not_valid_after_utc)}
        if files.client_certificates == "none":
            return TlsContext(context=context, asks=False, **facts)
        # A session that is taken up again would let in who is not looked at: no tickets, neither of 1.2 nor of 1.3.
        # The cache of 1.2 cannot be turned off here; `proxy.tls.channel` refuses what comes out of it.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        context.verify_mode = _MODES[files.client_certificates]
        assert files.client_ca is not None, "the configuration was checked"
        anchors = _certificates("client_ca", files.client_ca)
        for each in anchors:
            context.load_verify_locations(cadata=_der(each))
        if files.crl is not None:
            facts |= _take_crls(context, files.crl)
        return TlsContext(
            context=context, asks=True, anchors=frozenset(fingerprint(_der(each)) for each in anchors), **facts
        )

    def signature(self, files: TlsFiles) -> Signature:
        """Look at the files; see `TlsLoader.signature`."""
        seen = []
        for path in (files.certificate, files.key, files.client_ca, files.crl):
            if path is None:
                continue
            try:
                status = os.stat(path)
            except OSError:
                seen.append((path, 0, 0, 0))
            else:
                seen.append((path, status.st_ino, status.st_size, status.st_mtime_ns))
        return tuple(seen)


def fingerprint(der: bytes) -> bytes:
    """Return the SHA-256 of a certificate."""
    return hashlib.sha256(der).digest()


def _read(field: str, path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise TlsFileBad(field, path, f"cannot be read ({file_fault(error, path)}); configure a PEM file") from error
    if len(content) > FILE_BYTES_MAX:
        raise TlsFileBad(field, path, f"has more than {FILE_BYTES_MAX} bytes; configure a PEM file")
    return content


def _certificates(field: str, path: str) -> list[Any]:
    """Read all certificates of a file, one at least. The package is imported where there is TLS (D38)."""
    from cryptography import x509

    content = _read(field, path)
    try:
        found = x509.load_pem_x509_certificates(content)
    except ValueError as error:
        what = "the node's certificate" if field == "certificate" else "the certificates of the client CA"
        reason = f"has no readable certificate; it must contain {what} in PEM (-----BEGIN CERTIFICATE-----)"
        raise TlsFileBad(field, path, reason) from error
    return list(found)


def _check_key(files: TlsFiles, leaf: Any) -> None:
    from cryptography.hazmat.primitives import serialization

    content = _read("key", files.key)
    try:
        key = serialization.load_pem_private_key(content, None)
    except TypeError as error:
        reason = "is encrypted, and the node has no passphrase; write the key without one (`openssl pkey`), mode 0600"
        raise TlsFileBad("key", files.key, reason) from error
    except Exception as error:
        # Besides ValueError, of kinds that the package knows and OpenSSL does not take.
        reason = "has no readable private key; it must contain one in PEM (-----BEGIN PRIVATE KEY-----)"
        raise TlsFileBad("key", files.key, reason) from error
    if _public_bytes(key.public_key()) != _public_bytes(leaf.public_key()):
        reason = f"does not belong to the certificate in {files.certificate}; configure the key of that certificate"
        raise TlsFileBad("key", files.key, reason)


def _take_crls(context: ssl.SSLContext, path: str) -> dict[str, Any]:
    from cryptography import x509

    content = _read("crl", path)
    if b"CERTIFICATE-----" in content:
        # OpenSSL takes these, too: they would be CAs of clients beside those of `clientCa`.
        reason = "contains certificates, whose clients would be let in; move them to tls.clientCa, or remove them"
        raise TlsFileBad("crl", path, reason)
    begin, end = b"-----BEGIN X509 CRL-----", b"-----END X509 CRL-----"
    try:
        parts = [part.partition(end)[0] for part in content.split(begin)[1:]]
        lists = [x509.load_pem_x509_crl(b"%s%s%s\n" % (begin, part, end)) for part in parts]
        if not lists:
            raise ValueError("it has none")
        context.load_verify_locations(cafile=path)
    except (OSError, ValueError, ssl.SSLError) as error:
        reason = "has no readable revocation list; it must contain lists in PEM (-----BEGIN X509 CRL-----)"
        raise TlsFileBad("crl", path, reason) from error
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF

    serials: dict[x509.Name, set[int]] = {}
    """By issuer; made when the first is asked for, as a list's own look goes through all of it."""

    def is_revoked(der: bytes) -> bool:
        leaf = x509.load_der_x509_certificate(der)
        for each in () if serials else lists:
            serials.setdefault(each.issuer, set()).update(entry.serial_number for entry in each)
        return leaf.serial_number in serials.get(leaf.issuer, ())

    expire = [_epoch_ms(each.next_update_utc) for each in lists if each.next_update_utc is not None]
    return {"crls_expire_ms": min(expire, default=None), "is_revoked": is_revoked}


def _public_bytes(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    encoded: bytes = key.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return encoded


def _der(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization

    encoded: bytes = certificate.public_bytes(serialization.Encoding.DER)
    return encoded


def _epoch_ms(moment: Any) -> int:
    return int(moment.timestamp() * 1000)


def _said(error: Exception) -> str:
    return str(getattr(error, "reason", None) or error).replace("_", " ").lower()
