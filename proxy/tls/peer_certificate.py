"""What a client's certificate says of it, once the handshake has checked it against the client CA.

Everything in here was written by the CA or, where that signs what it is asked to, by the client: names are text to be
compared as a whole, never parsed again. Characters that end a line or a field are escaped as RFC 4514 has it.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""Names of RFC 4514, section 3, by what OpenSSL calls them; other attributes keep OpenSSL's name."""
_NAMES = ("DNS", "URI", "email")
_ESCAPED = frozenset('"+,;<>\\=')


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerCertificate:
    """A client certificate that the client CA signed.

    Attributes:
        subject: Its subject in RFC 4514's form, the last attribute first: `CN=worker-1,OU=billing,O=Example`.
        names: Its alternative names of three kinds, in its order: `DNS:..`, `URI:..`, `email:..`.
        common_name: The last CN of the subject; None where it has none.
        serial: Serial number in upper-case hex.
        not_after_ms: When it expires, epoch milliseconds.
    """

    subject: str
    names: tuple[str, ...]
    common_name: str | None
    serial: str
    not_after_ms: int


def peer_certificate(reported: Mapping[str, Any]) -> PeerCertificate:
    """Make it of what `ssl.SSLObject.getpeercert` returned of a certificate that was verified."""
    parts = [[(_SHORT.get(kind, kind), value) for kind, value in each] for each in reported.get("subject", ())]
    common = [value for each in parts for kind, value in each if kind == "CN"]
    return PeerCertificate(
        subject=",".join("+".join(f"{kind}={_escaped(value)}" for kind, value in each) for each in reversed(parts)),
        names=tuple(f"{kind}:{value}" for kind, value in reported.get("subjectAltName", ()) if kind in _NAMES),
        common_name=common[-1] if common else None,
        serial=str(reported["serialNumber"]),
        not_after_ms=ssl.cert_time_to_seconds(reported["notAfter"]) * 1000,
    )


def _escaped(value: str) -> str:
    """Escape a value as RFC 4514, section 2.4; control characters by their bytes in hex."""
    text = "".join(
        f"\\{each}"
        if each in _ESCAPED
        else "".join(f"\\{byte:02X}" for byte in each.encode())
        if ord(each) < ord(" ") or each == "\x7f"
        else each
        for each in value
    )
    if text.startswith((" ", "#")):
        text = f"\\{text}"
    if text.endswith(" ") and value != " ":
        text = f"{text[:-1]}\\ "
    return text
