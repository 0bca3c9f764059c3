"""The section `tls`: encrypted ports beside the plain ones, and the files that they show and check certificates by.

Keys under `tls` hold for all of its ports, keys under a port for that port. The files are read at
the start and again with every reload: which they are takes a restart, what is in them does not.
"""

from __future__ import annotations

from typing import Literal

from conf.base import Model, Reload, setting
from conf.sections.node import Port

__all__ = ["ClientCertificates", "TlsConfig", "TlsFiles", "TlsListenerConfig", "TlsVersion"]

ClientCertificates = Literal["none", "optional", "required"]
TlsVersion = Literal["1.2", "1.3"]
_LIVE = Reload.LIVE
_RESTART = Reload.RESTART


class TlsFiles(Model):
    """The files of one port, and how clients are asked for certificates: what a context is made of."""

    certificate: str
    key: str
    client_certificates: ClientCertificates = "none"
    client_ca: str | None = None
    crl: str | None = None
    minimum_version: TlsVersion = "1.2"


class TlsListenerConfig(Model):
    """One encrypted port: `tls.producer`, `tls.consumer`, `tls.admin`."""

    port: Port = setting(..., "The port; 0 selects any free one.", reload=_RESTART)
    host: str | None = setting(
        None,
        "Address that it binds. A non-loopback address needs a section `access` (or, except for `admin`, "
        "`access: open` under node): a certificate identifies a client, but grants no rights.",
        reload=_RESTART,
        absent="that of the plain port",
        min_length=1,
    )
    certificate: str | None = setting(
        None, "As above, for this port.", reload=_RESTART, absent="as above", min_length=1
    )
    key: str | None = setting(None, "As above, for this port.", reload=_RESTART, absent="as above", min_length=1)
    client_certificates: ClientCertificates | None = setting(
        None, "As above, for this port.", reload=_RESTART, absent="as above"
    )
    client_ca: str | None = setting(None, "As above, for this port.", reload=_RESTART, absent="as above", min_length=1)
    crl: str | None = setting(None, "As above, for this port.", reload=_RESTART, absent="as above", min_length=1)


class TlsConfig(Model):
    """The section `tls`; without a port in it nothing is encrypted."""

    certificate: str | None = setting(
        None,
        "PEM file with the node's certificate, followed by the intermediate certificates up to its CA.",
        reload=_RESTART,
        min_length=1,
    )
    key: str | None = setting(
        None,
        "PEM file with its private key, not encrypted; may be the same file.",
        reload=_RESTART,
        min_length=1,
    )
    client_certificates: ClientCertificates = setting(
        "none",
        "Client certificates of clientCa: `none` requests none, `optional` also accepts clients without "
        "one (an invalid one is refused), `required` refuses clients without one.",
        reload=_RESTART,
    )
    client_ca: str | None = setting(
        None, "PEM file with the CAs of client certificates.", reload=_RESTART, min_length=1
    )
    crl: str | None = setting(
        None,
        "PEM file with the revocation lists of those CAs. If set, it must contain a valid list of each CA; "
        "clients of a CA without one are refused.",
        reload=_RESTART,
        min_length=1,
    )
    minimum_version: TlsVersion = setting("1.2", "Minimum TLS version.", reload=_RESTART)
    handshake_timeout: int = setting(
        10_000,
        "Time limit of a handshake in ms, from the connection; then its connection is closed.",
        reload=_LIVE,
        ge=100,
        le=300_000,
    )
    expiry_warning_days: int = setting(
        14,
        "Number of days before the node's certificate expires at which a finding is shown.",
        reload=_LIVE,
        ge=0,
        le=3650,
    )
    producer: TlsListenerConfig | None = setting(None, "Port of ProducerService over TLS.", reload=_RESTART)
    consumer: TlsListenerConfig | None = setting(None, "Port of ConsumerService over TLS.", reload=_RESTART)
    admin: TlsListenerConfig | None = setting(None, "Port of the admin HTTP server over TLS (https).", reload=_RESTART)

    def listeners(self) -> dict[str, TlsListenerConfig]:
        """Return the ports that are to be, by "producer", "consumer" and "admin"."""
        named = {"producer": self.producer, "consumer": self.consumer, "admin": self.admin}
        return {name: each for name, each in named.items() if each is not None}

    def files(self, name: str) -> TlsFiles:
        """Return what the context of a port is made of.

        Raises:
            KeyError: The port does not exist.
        """
        own = self.listeners()[name]
        mode = own.client_certificates or self.client_certificates
        return TlsFiles(
            certificate=own.certificate or self.certificate or "",
            key=own.key or self.key or "",
            client_certificates=mode,
            client_ca=(own.client_ca or self.client_ca) if mode != "none" else None,
            crl=(own.crl or self.crl) if mode != "none" else None,
            minimum_version=self.minimum_version,
        )

    def place(self, name: str, field: str) -> tuple[str, ...]:
        """Return where a file of a port is in the section: with the port, or above."""
        own = getattr(self.listeners()[name], field) is not None
        key = str(type(self).model_fields[field].alias)
        return (name, key) if own else (key,)
