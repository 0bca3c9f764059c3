"""Why a handshake failed, as a word for a counter and a sentence for the log."""

from __future__ import annotations

import ssl
from typing import NamedTuple


class TlsFailure(NamedTuple):
    """A word of `SENTENCES`, and what OpenSSL said besides."""

    reason: str
    said: str = ""

    @property
    def text(self) -> str:
        """A sentence."""
        return f"{SENTENCES[self.reason]} ({self.said})" if self.said else SENTENCES[self.reason]


SENTENCES = {
    "timeout": "the handshake took longer than tls.handshakeTimeout",
    "plain_text": (
        "the received bytes are not TLS; write tls://HOST:PORT (https:// for the admin port), or use the plain port"
    ),
    "http": "the received bytes are HTTP without TLS",
    "version": "the client supports no TLS version that is allowed here (tls.minimumVersion)",
    "cipher": "the client supports no cipher that is allowed here",
    "no_certificate": "the client sent no certificate, and this port requires one",
    "unknown_ca": "no CA in tls.clientCa issued the client's certificate",
    "expired": "the client's certificate has expired",
    "not_yet_valid": "the client's certificate is not valid yet; check the clocks",
    "revoked": "the client's certificate is revoked",
    "crl": "tls.crl has no valid list of the CA of the client's certificate",
    "bad_certificate": "the client's certificate is refused",
    "refused_by_client": "the client refuses the node's certificate",
    "resumed": "the client resumed an earlier session, which is not allowed where client certificates are requested",
    "too_long": "the client sent more bytes than a handshake may have",
    "ended": "the client closed the connection during the handshake",
    "other": "the handshake failed",
}
"""By the word under which it is counted."""

ALERT = b"\x15\x03\x01\x00\x02\x02\x0a"
"""A fatal alert (unexpected_message), in clear: to a TLS client on a plain port, and to a plain one on a TLS port."""

_VERIFY = {9: "not_yet_valid", 10: "expired", 23: "revoked", 3: "crl", 11: "crl", 12: "crl", 33: "crl"}
_UNKNOWN_CA = frozenset((2, 18, 19, 20, 21))
_VERSION = frozenset(("UNSUPPORTED_PROTOCOL", "WRONG_VERSION_NUMBER", "VERSION_TOO_LOW", "NO_PROTOCOLS_AVAILABLE"))
_NOT_TLS = frozenset(("HTTP_REQUEST", "HTTPS_PROXY_REQUEST"))


def failure_of(error: ssl.SSLError) -> TlsFailure:
    """Say what an error of the server's side of a handshake means."""
    code = getattr(error, "verify_code", 0)
    if isinstance(error, ssl.SSLCertVerificationError) and code:
        reason = _VERIFY.get(code, "unknown_ca" if code in _UNKNOWN_CA else "bad_certificate")
        return TlsFailure(reason, str(error.verify_message))
    said = str(error.reason or "")
    if said in _VERSION or said == "TLSV1_ALERT_PROTOCOL_VERSION":
        return TlsFailure("version")
    if said == "NO_SHARED_CIPHER":
        return TlsFailure("cipher")
    if said == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return TlsFailure("no_certificate")
    if said in _NOT_TLS:
        return TlsFailure("http")
    words = said.replace("_", " ").lower()
    return TlsFailure("refused_by_client" if "ALERT" in said else "other", words)
