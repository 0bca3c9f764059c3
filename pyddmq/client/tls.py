"""TLS towards a node: which CA is trusted, what the client shows, and sentences for what can be wrong.

An address that begins with `tls://` is spoken to by TLS, 1.2 or 1.3. Nothing ever falls back to plain text.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import NamedTuple

from pyddmq.client.codec import is_host, parse_address
from pyddmq.client.errors import ClientMisuse, TlsFailed

SCHEME = "tls://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to speak TLS to a node. The files are read at each connect, so that they may be replaced.

    Attributes:
        ca: PEM file with the CAs that are trusted for the node's certificate; None: those of the system.
        certificate: PEM file with the client's own certificate, where the node asks for one.
        key: PEM file with its key; None means the same file.
        server_name: Name that the node's certificate must have; None: the host of the address.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None

    def context(self) -> ssl.SSLContext:
        """Read the files. Raises ClientMisuse: one of them, or the name, cannot be used."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except (OSError, ssl.SSLError) as error:
            raise ClientMisuse(_bad_file("CA", str(self.ca), error)) from error
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if self.server_name and not is_host(self.server_name):
            raise ClientMisuse(
                f"{self.server_name!r} is not a valid server_name; pass a name that a certificate can have"
            )
        if self.certificate is not None:
            try:
                context.load_cert_chain(self.certificate, self.key, password=_no_password)
            except (OSError, ssl.SSLError, ValueError) as error:
                file = self.certificate if self.key is None else f"{self.certificate} with key {self.key}"
                raise ClientMisuse(_bad_file("client certificate", file, error)) from error
        elif self.key is not None:
            raise ClientMisuse("a TLS key without its certificate; pass both")
        return context


class Endpoint(NamedTuple):
    """Where a node is, and how it is spoken to: by TLS, unless `tls` is None."""

    host: str
    port: int
    tls: Tls | None

    @property
    def peer(self) -> tuple[str, int]:
        """Host and port."""
        return self.host, self.port

    @property
    def server_name(self) -> str:
        """The name that the node's certificate must have."""
        return (self.tls.server_name if self.tls is not None else None) or self.host


def endpoint(address: str, tls: Tls | None) -> Endpoint:
    """Read an address, `host:port` or `tls://host:port`.

    Args:
        address: The text.
        tls: For an address by TLS; all defaults when None.

    Raises:
        ClientMisuse: It is no such text, or TLS is set up for an address without it.
    """
    if address.startswith(SCHEME):
        return Endpoint(*parse_address(address), tls or Tls())
    if tls is not None:
        raise ClientMisuse(f"TLS is set up, and {address!r} is an address without it; write {SCHEME}{address}")
    return Endpoint(*parse_address(address), None)


def failure(address: str, error: OSError) -> TlsFailed | None:
    """Return what an error of a connection by TLS means, or None: nothing that has to do with TLS.

    Those that a node sends as an alert come, with TLS 1.3, only with the first answer; no call has taken effect then.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(address, _VERIFY.get(error.verify_code, f"its certificate is refused: {error.verify_message}"))
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return None
    reason = str(error.reason or "")
    for word, sentence in _REASONS.items():
        if word in reason:
            return TlsFailed(address, sentence)
    return TlsFailed(address, f"the handshake failed: {reason.replace('_', ' ').lower() or error}")


_WRONG_CA = "no trusted CA issued its certificate; pass the file of its CA (ca, --tls-ca)"
_VERIFY = {
    9: "its certificate is not valid yet; check the clocks of both sides",
    10: "its certificate has expired; the node needs a new one",
    **dict.fromkeys((2, 18, 19, 20, 21), _WRONG_CA),
    **dict.fromkeys((62, 64), "its certificate has another name; pass that name (server_name, --tls-name)"),
}
"""By OpenSSL's codes of what is wrong with a certificate."""
_OWN = "the node refuses the client's certificate"
_REASONS = {
    "WRONG_VERSION_NUMBER": "the port does not speak TLS; remove tls://, or use its TLS port",
    "UNEXPECTED_MESSAGE": "the port does not speak TLS; remove tls://, or use its TLS port",
    "CERTIFICATE_REQUIRED": "the node requires a client certificate; pass one (certificate, --tls-certificate)",
    "ALERT_HANDSHAKE_FAILURE": "the node refuses the handshake; it may want a client certificate, or know no common "
    "cipher",
    "ALERT_UNKNOWN_CA": f"{_OWN}: no CA that the node trusts issued it",
    "ALERT_CERTIFICATE_EXPIRED": f"{_OWN}: it has expired, or is not valid yet",
    "ALERT_CERTIFICATE_REVOKED": f"{_OWN}: it is revoked",
    "ALERT_BAD_CERTIFICATE": f"{_OWN}: it is not valid (yet), or cannot be used for a client",
    "ALERT_UNSUPPORTED_CERTIFICATE": f"{_OWN}: it cannot be used for a client",
    "PROTOCOL_VERSION": "no TLS version is common to both sides; the node supports 1.2 and 1.3",
    "UNSUPPORTED_PROTOCOL": "no TLS version is common to both sides; the client supports 1.2 and 1.3",
}
"""By a part of OpenSSL's names of what went wrong."""


def _no_password() -> str:
    raise ValueError("the key is encrypted; write it without a passphrase (`openssl pkey`)")


def _bad_file(what: str, path: str, error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "no PEM in it").replace("_", " ").lower()
    elif isinstance(error, OSError):
        reason = (error.strerror or str(error)).lower()
    else:
        reason = str(error)
    return f"the {what} in {path} cannot be used: {reason}"
