"""A node in virtual time with encrypted ports, and clients whose every byte of TLS is up to a test."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

from pyddmq.testing.network import SimTransport
from tests.hostile.sim import HostileWorld, Raw
from tests.simulation.wire import consumer_codec, producer_codec
from tests.tls.conftest import Certificates

PORTS = {"producer": 9614, "consumer": 9714}


class Speaking(asyncio.Protocol):
    """A client's end: TLS below, `Raw` above.

    Attributes:
        raw: Is connected once the handshake is over.
        below: The simulated transport.
        engine: OpenSSL's.
        error: What the handshake or a read failed with.
        clear: What came that was no TLS.
        lost: Whether the connection is closed.
    """

    def __init__(
        self, raw: Raw, context: ssl.SSLContext, *, session: ssl.SSLSession | None = None, silent: bool = False
    ) -> None:
        self.raw = raw
        self.below: SimTransport
        self.error: ssl.SSLError | None = None
        self.ready = self.lost = self.ended = False
        self.silent = False
        self._stops = silent
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.engine = context.wrap_bio(self._in, self._out, server_hostname="localhost", session=session)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, SimTransport)
        self.below = transport
        self.go_on()
        # Its hello has left.
        self.silent = self._stops

    def data_received(self, data: bytes) -> None:
        self._in.write(data)
        self.go_on()

    def eof_received(self) -> bool:
        self.ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        self.raw.connection_lost(exc)

    def go_on(self) -> None:
        """Shake hands, or read what came."""
        if self.silent or self.error is not None:
            return
        try:
            if not self.ready:
                self.engine.do_handshake()
                self.ready = True
                self.raw.connection_made(self)  # type: ignore[arg-type]
            while data := self.engine.read(1 << 20):
                self.raw.data_received(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            self.error = error
        self.send()

    def send(self) -> None:
        """Give to the network what OpenSSL has to say."""
        if self._out.pending:
            self.below.write(self._out.read())

    def write(self, data: bytes) -> None:
        """Send, encrypted."""
        self.engine.write(data)
        self.send()

    def say_end(self) -> None:
        """Send close_notify, and read on."""
        with contextlib.suppress(ssl.SSLError):
            self.engine.unwrap()
        self.send()


class TlsWorld(HostileWorld):
    """`HostileWorld` with `tls`."""

    def __init__(self, certificates: Certificates, more: str = "", *, ask: str = "none", node: str = "") -> None:
        """Start.

        Args:
            certificates: Whose files the node has.
            more: More lines of the section `tls`.
            ask: clientCertificates.
            node: More keys of the section `node`.
        """
        self.certificates = certificates
        yaml = certificates.yaml(more, ask=ask)
        for name, port in PORTS.items():
            yaml = yaml.replace(f"{name}: {{port: 0}}", f"{name}: {{port: {port}}}")
        super().__init__(
            f"node: {{memoryMax: 268435456, segmentBytes: 4194304, maxMessageBytes: 2000000{node}}}\n{yaml}"
        )

    def context(self, name: str | None = None, version: ssl.TLSVersion | None = None) -> ssl.SSLContext:
        """What a client speaks with: the certificate of a name, one version alone."""
        context = self.certificates.tls(name).context()
        if version is not None:
            context.minimum_version = context.maximum_version = version
        return context

    def open(
        self,
        service: str = "consumer",
        context: ssl.SSLContext | None = None,
        *,
        host: str = "10.0.0.1",
        **options: Any,
    ) -> Speaking:
        """Open a connection by TLS, and let the handshake have its way."""
        speaking = Speaking(
            Raw(consumer_codec() if service == "consumer" else producer_codec()), context or self.context(), **options
        )
        self.network.connect(speaking, ("127.0.0.1", PORTS[service]), host=host)
        self.run(0.1)
        return speaking

    @staticmethod
    def connect_raw() -> Raw:
        """Return what stands above TLS, to be connected by hand."""
        return Raw(consumer_codec())

    def connect(self, service: str) -> Raw:
        """Open a connection by TLS; what is written to it is encrypted."""
        return self.open(service).raw

    def clear(self, data: bytes, *, host: str = "10.0.0.1", wait: float = 0.1) -> Clear:
        """Open a connection to the consumers' TLS port and send bytes as they are."""
        client = Clear()
        self.network.connect(client, ("127.0.0.1", PORTS["consumer"]), host=host)
        if data:
            client.transport.write(data)
        if wait:
            self.run(wait)
        return client

    @property
    def port(self) -> Any:
        """The consumers' TLS port."""
        return self.node.parts.tls.by_service["consumer"]

    def counted(self, counter: Any, *labels: str) -> int:
        """Return a counter of the consumers' port."""
        return int(self.node.runtime.metrics.value(counter, "consumer", *labels))


class Clear(asyncio.Protocol):
    """A client without TLS."""

    def __init__(self) -> None:
        self.received = b""
        self.ended = self.lost = False
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data

    def eof_received(self) -> bool:
        self.ended = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
