"""TLS towards a node, as options of the sources and the sink say: `node` as `tls://host:port`, and files beside it.

`tlsCa`, `tlsCertificate`, `tlsKey` are paths where Spark's tasks run, on every worker; `tlsServerName` is the name that
the node's certificate must have. Nothing ever falls back to plain text.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lag.spark.sources.options import OptionRefused

SCHEME: Final = "tls://"
OPTIONS: Final = ("tlsCa", "tlsCertificate", "tlsKey", "tlsServerName")


@dataclass(frozen=True)
class TlsOptions:
    """What the options say; the files are read at each connect.

    Attributes:
        ca: PEM file of the CAs that are trusted; None: the system's.
        certificate: PEM file that is shown to a node which asks.
        key: PEM file of its key; None: in the same file.
        server_name: None: the host of the address.
    """

    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    server_name: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> TlsOptions:
        """Read them. Raises OptionRefused: they stand beside an address without TLS."""
        found = cls(*(options.get(name) or None for name in OPTIONS))
        node = options.get("node", "")
        if found != cls() and not node.startswith(SCHEME):
            given = ", ".join(name for name in OPTIONS if options.get(name))
            raise OptionRefused(f"options {given} are for TLS, and option 'node' is {node!r}: write {SCHEME}host:port")
        return found

    def secured(self, plain: socket.socket, host: str) -> ssl.SSLSocket:
        """Shake hands over a connection. Raises OSError, with a sentence where TLS does not come about."""
        try:
            context = ssl.create_default_context(cafile=self.ca)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.certificate is not None:
                context.load_cert_chain(self.certificate, self.key, password="")
        except (OSError, ValueError) as error:
            raise OSError(f"a file of tlsCa, tlsCertificate or tlsKey cannot be used ({error})") from error
        return context.wrap_socket(plain, server_hostname=self.server_name or host)


def said(error: OSError) -> str:
    """Return what an error of a connection means, for a sentence."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message} (options tlsCa, tlsServerName)"
    reason = str(getattr(error, "reason", None) or "")
    if "CERTIFICATE_REQUIRED" in reason:
        return "it wants a client certificate (options tlsCertificate, tlsKey)"
    if ("ALERT" in reason and "CERTIFICATE" in reason) or "UNKNOWN_CA" in reason:
        return f"it refuses the client's certificate ({reason.replace('_', ' ').lower()})"
    if "WRONG_VERSION_NUMBER" in reason or "UNEXPECTED_MESSAGE" in reason:
        return "the port there speaks no TLS; leave out tls://, or name its TLS port"
    return str(error)
