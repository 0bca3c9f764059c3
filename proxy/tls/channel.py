"""TLS between a socket and a connection: the socket's protocol below, the connection's transport above.

Why not asyncio's own: replies are counted (D18, D40, F9). What counts is what the kernel has, and that is ciphertext. A
write here is encrypted and handed to the socket's transport in the same call, and nothing is kept in between; so the
transport below says by its own buffer, at once, whether the kernel took all of it, and what it says is passed on as it
is: `pause_writing`, the size of its buffer, whether it closes. `TlsTransport.sent` counts the same bytes as the peer's
system acknowledges. A record of which the peer's kernel has a part counts as handed out: the timeout decides. All of
this holds for asyncio and uvloop alike.

The connection gets its transport before the handshake, and counts against its port's limits from then on; it
hears of nothing else before the end of the handshake. A handshake's steps are made in turns (`Handshakes`), for each
costs as much as a hundred calls.

What comes as close_notify is an end of file: the peer sends no more and may still read.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from typing import Any, Protocol, cast

from broker.runtime.seams import Buffer
from proxy.tls.failures import ALERT, TlsFailure, failure_of
from proxy.tls.files import TlsContext, fingerprint
from proxy.tls.peer_certificate import PeerCertificate, peer_certificate

TLS_BYTES = 20 * 1024
"""What a connection takes for TLS beside its objects: OpenSSL's state and buffers; 17 KB were measured."""
HANDSHAKE_BYTES_MAX = 128 * 1024
"""What a client may send before the end of its handshake: OpenSSL takes chains of up to 100 KB."""
CONTROL_BYTES_MAX = 4 * 1024
"""Answers to the peer's TLS messages (key updates) that may wait while it reads nothing."""
_PIECE_BYTES = 16 * 1024
"""What passes through a memory BIO at once. A BIO keeps the largest size that it ever had, so a reply of 4 MiB in one
piece would cost its connection as much until its end."""
_CLIENT_HELLO = 0x16
_BAD_RECORD = b"\x17\x03\x03\x00\x40" + bytes(64)
_HTTP = frozenset((b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"PATC", b"CONN", b"TRAC", b"PRI "))
_HTTP_TEXT = b"This port speaks TLS: write https:// for the admin port; the Thrift ports serve no HTTP.\n"
_HTTP_ANSWER = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n%s" % (len(_HTTP_TEXT), _HTTP_TEXT)
)


class Above(Protocol):
    """A connection's protocol, as the channel sees it: one of asyncio that hears of the end of the handshake."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport; it may be closed at once."""

    def secured(self, certificate: PeerCertificate | None) -> None:
        """The handshake has ended; data may come. The certificate was checked; None: the client showed none."""

    def data_received(self, data: bytes) -> None:
        """Take decrypted bytes."""

    def eof_received(self) -> bool | None:
        """The peer sends no more; true: keep the transport open."""

    def pause_writing(self) -> None:
        """The kernel takes no more."""

    def resume_writing(self) -> None:
        """It does again."""

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""


class ChannelPort(Protocol):
    """The port of a channel; `proxy.tls.port` is the one there is."""

    @property
    def current(self) -> TlsContext:
        """The context in force."""

    def began(self, channel: TlsChannel) -> None:
        """A connection was accepted; its handshake has so long from now on."""

    def ask(self, channel: TlsChannel) -> None:
        """Have its handshake continue when its turn comes."""

    def finished(self, channel: TlsChannel, version: str) -> None:
        """A handshake has ended."""

    def failed(self, channel: TlsChannel, failure: TlsFailure) -> None:
        """A handshake has failed."""

    def refusal(self, channel: TlsChannel, context: TlsContext) -> str | None:
        """Return why a channel's certificate does not hold now, as a word; None: it does, or there is none."""

    def gone(self, channel: TlsChannel) -> None:
        """A connection is closed."""


class TlsChannel(asyncio.Protocol):
    """The protocol of one accepted socket of a TLS port.

    Attributes:
        context: What its handshake is made with; None until its first byte.
        certificate: The client's; None where it has shown none.
        der: The same as it came.
        anchor: Fingerprint of the CA behind it; None where that is unknown.
        handshaking: Whether its handshake is not over.
        asked: Whether it waits for its turn in `Handshakes`.
    """

    __slots__ = (
        "_above",
        "_control",
        "_ended",
        "_engine",
        "_failed",
        "_fed",
        "_incoming",
        "_keep",
        "_not_fed",
        "_outgoing",
        "_port",
        "_transport",
        "_writable",
        "anchor",
        "asked",
        "below",
        "certificate",
        "context",
        "der",
        "handshaking",
    )

    def __init__(self, above: Above, port: ChannelPort) -> None:
        self._above = above
        self._port = port
        self._engine: ssl.SSLObject | None = None
        self._incoming = ssl.MemoryBIO()
        self._not_fed = bytearray()
        """Bytes received during the handshake that wait for a place in `_incoming`."""
        self._outgoing = ssl.MemoryBIO()
        self._transport: TlsTransport | None = None
        self._fed = 0
        self._control = 0
        self._ended = False
        self._keep: bool | None = False
        self._failed = False
        self._writable = True
        self.below: asyncio.Transport | None = None
        self.context: TlsContext | None = None
        self.certificate: PeerCertificate | None = None
        self.der = b""
        self.anchor: bytes | None = None
        self.handshaking = True
        self.asked = False

    @property
    def peer(self) -> str:
        """Address of the client, for people."""
        found: Any = None if self.below is None else self.below.get_extra_info("peername")
        return f"{found[0]}:{found[1]}" if isinstance(found, tuple) else "?"

    # Calls of the socket's transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Have the connection counted, which may close it; the handshake begins with the client's first byte."""
        self.below = cast("asyncio.Transport", transport)
        self._transport = TlsTransport(self, self.below)
        self._above.connection_made(self._transport)
        if not self.below.is_closing():
            self._port.began(self)

    def data_received(self, data: bytes) -> None:
        """Decrypt, or wait for the turn of the handshake."""
        transport = self._transport
        if transport is None or self._failed or self._ended or transport.is_closing():
            # After its close_notify nothing of a peer is read, and OpenSSL would keep it all.
            return
        if self.handshaking:
            if not self._fed and data[0] != _CLIENT_HELLO:
                self._refuse_plain(transport.below, data)
                return
            self._fed += len(data)
            if self._fed > HANDSHAKE_BYTES_MAX:
                self.fail(TlsFailure("too_long"))
                return
            self._not_fed += data
            self._port.ask(self)
        elif self._engine is not None:
            self._decrypt(self._engine, transport, data)

    def eof_received(self) -> bool | None:
        """Nothing more comes; a peer that left without close_notify is one that left."""
        if self.handshaking:
            self.fail(TlsFailure("ended"))
            return False
        if not self._ended:
            self._ended = True
            self._keep = self._above.eof_received()
        return self._keep

    def pause_writing(self) -> None:
        """Pass it on."""
        self._writable = False
        self._above.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on."""
        self._writable = True
        self._control = 0
        self._above.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        if self.handshaking and self.context is not None and not self._failed:
            self._failed = True
            self._port.failed(self, TlsFailure("ended"))
        self.handshaking = False
        self._port.gone(self)
        self._above.connection_lost(exc)

    # The handshake.

    def shake(self) -> None:
        """Make the step of the handshake that is due."""
        transport = self._transport
        if not self.handshaking or self._failed or transport is None or transport.below.is_closing():
            return
        if self._engine is None or self.context is None:
            self.context = self._port.current
            self._engine = self.context.context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        while True:
            if not self._incoming.pending:
                self._incoming.write(self._not_fed[:_PIECE_BYTES])
                del self._not_fed[:_PIECE_BYTES]
            try:
                self._engine.do_handshake()
                break
            except ssl.SSLWantReadError:
                if not self._not_fed:
                    self._send()
                    return
            except ssl.SSLError as error:
                self._send()
                self.fail(failure_of(error))
                return
        if self.context.asks and self._engine.session_reused:
            self._forget_session(self._engine)
            self.fail(TlsFailure("resumed"))
            return
        self._take_certificate(self._engine)
        now = self._port.current
        why = self._port.refusal(self, now) if now is not self.context else None
        if why is not None:
            self.fail(TlsFailure(why))
            return
        self.handshaking = False
        self._port.finished(self, self._engine.version() or "?")
        self._above.secured(self.certificate)
        self._send()
        rest, self._not_fed = bytes(self._not_fed), bytearray()
        self._decrypt(self._engine, transport, rest)

    def fail(self, failure: TlsFailure, *, at_once: bool = False) -> None:
        """End a handshake that cannot succeed; what was answered leaves, unless it is to end at once."""
        if self._failed or self.below is None:
            return
        self._failed = True
        self._port.failed(self, failure)
        if at_once:
            self.below.abort()
        else:
            self.below.close()

    def end(self) -> None:
        """Close at once: who is at the other end may be there no more."""
        if self.below is not None:
            self.below.abort()

    def _forget_session(self, engine: ssl.SSLObject) -> None:
        """Have both sides forget the session that was taken up, so that the client's next try is a whole handshake.

        A fatal alert does that (RFC 5246, 7.2.2), and a record with a wrong sum makes OpenSSL send one. To end without
        it would not do: Python sees to it that OpenSSL keeps sessions.
        """
        self._incoming.write(_BAD_RECORD)
        with contextlib.suppress(ssl.SSLError):
            while engine.read(_PIECE_BYTES):
                pass
        self._send()

    def _take_certificate(self, engine: ssl.SSLObject) -> None:
        reported = engine.getpeercert()
        if not reported:
            return
        self.certificate = peer_certificate(reported)
        self.der = engine.getpeercert(binary_form=True) or b""
        self.anchor = _anchor(engine)

    def _refuse_plain(self, below: asyncio.Transport, data: bytes) -> None:
        """Tell a client without TLS what this port speaks, in what it is likely to understand."""
        is_http = data[:4] in _HTTP
        below.write(_HTTP_ANSWER if is_http else ALERT)
        self.fail(TlsFailure("http" if is_http else "plain_text"))

    # Bytes.

    def _decrypt(self, engine: ssl.SSLObject, transport: TlsTransport, data: bytes) -> None:
        """Hand on what can be read after `data` was received."""
        parts = []
        ended, broken = False, False
        view = memoryview(data)
        for begin in range(0, max(len(data), 1), _PIECE_BYTES):
            self._incoming.write(view[begin : begin + _PIECE_BYTES])
            try:
                while part := engine.read(_PIECE_BYTES):
                    parts.append(part)
                ended = True
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLZeroReturnError:
                ended = True
            except ssl.SSLError:
                # Renegotiation, a wrong checksum or an alert: what would have followed is unknown.
                broken = True
            break
        if self._outgoing.pending:
            self._answer_control(transport.below)
        if parts:
            self._above.data_received(parts[0] if len(parts) == 1 else b"".join(parts))
        if broken:
            self._send()
            transport.abort()
        elif ended and not self._ended and not transport.is_closing():
            self._ended = True
            self._keep = self._above.eof_received()
            if not self._keep:
                transport.close()

    def _answer_control(self, below: asyncio.Transport) -> None:
        """Send what OpenSSL answers by itself, as long as the peer reads."""
        if not self._writable:
            self._control += self._outgoing.pending
            if self._control > CONTROL_BYTES_MAX:
                below.abort()
                return
        self._send()

    def _send(self) -> None:
        if self._outgoing.pending and self._transport is not None:
            self._transport.send(self._outgoing.read())

    def encrypt(self, data: Buffer) -> bytes:
        """Return records with the data, all of it. Raises ssl.SSLError, before the end of the handshake too."""
        engine = self._engine
        if engine is None or self.handshaking:
            raise ssl.SSLWantReadError("the handshake is not over")
        if len(data) <= _PIECE_BYTES:
            # OpenSSL takes all of it: a memory BIO is never full.
            engine.write(data)
            return self._outgoing.read()
        view, size, records = memoryview(data), 0, []
        while size < len(data):
            size += engine.write(view[size : size + _PIECE_BYTES])
            records.append(self._outgoing.read())
        return b"".join(records)

    def farewell(self) -> bytes:
        """Return close_notify, and what waits to be sent before it."""
        if self._engine is not None and not self.handshaking:
            with contextlib.suppress(ssl.SSLError):  # That the peer's own is still to come; it is not waited for.
                self._engine.unwrap()
        return self._outgoing.read()


class TlsTransport(asyncio.Transport):
    """What a connection writes to.

    Attributes:
        below: The socket's transport.
        sent: Bytes given to it so far: ciphertext and handshake, as the peer's system counts them.
    """

    def __init__(self, channel: TlsChannel, below: asyncio.Transport) -> None:
        super().__init__()
        self._channel = channel
        self._closing = False
        self._protocol: asyncio.BaseProtocol | None = None
        self.below = below
        self.sent = 0

    def send(self, data: bytes) -> None:
        """Give ciphertext to the socket."""
        self.sent += len(data)
        self.below.write(data)

    def write(self, data: Buffer) -> None:
        """Encrypt and send; what is written to a closing transport is dropped, as asyncio's do."""
        if self._closing or not data or self.below.is_closing():
            return
        try:
            records = self._channel.encrypt(data)
        except ssl.SSLError:
            # Before the handshake nothing is promised to the peer, and after an error of TLS nothing can be sent.
            self.abort()
            return
        self.sent += len(records)
        self.below.write(records)

    def writelines(self, list_of_data: Iterable[Buffer]) -> None:
        """Write all in one."""
        self.write(b"".join(list_of_data))

    def close(self) -> None:
        """Send what is buffered, say that nothing follows, and close."""
        if self._closing:
            return
        self._closing = True
        if not self.below.is_closing():
            last = self._channel.farewell()
            if last:
                self.send(last)
            self.below.close()

    def abort(self) -> None:
        """Close at once."""
        self._closing = True
        self.below.abort()

    def is_closing(self) -> bool:
        """Whether nothing is taken any more."""
        return self._closing or self.below.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """As below; besides `sslcontext`, by which asyncio's users know TLS, and `client_certificate`."""
        if name == "sslcontext":
            context = self._channel.context
            return True if context is None else context.context
        if name == "client_certificate":
            return self._channel.certificate
        return self.below.get_extra_info(name, default)

    def pause_reading(self) -> None:
        """As below: what has been received was handed on."""
        self.below.pause_reading()

    def resume_reading(self) -> None:
        """As below."""
        self.below.resume_reading()

    def is_reading(self) -> bool:
        """As below."""
        return self.below.is_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """As below: nothing is buffered here."""
        self.below.set_write_buffer_limits(high, low)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """As below."""
        return self.below.get_write_buffer_limits()

    def get_write_buffer_size(self) -> int:
        """As below, in ciphertext."""
        return self.below.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        """Say no: close_notify comes with the close."""
        return False

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Keep it to be asked for; bytes go to the connection that the channel was made with."""
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return it."""
        return self._protocol or self._channel


def _anchor(engine: ssl.SSLObject) -> bytes | None:
    """Return the fingerprint of the last certificate of the chain that was checked."""
    report = getattr(engine, "get_verified_chain", None)
    if report is not None:
        chain = report()
        return fingerprint(bytes(chain[-1])) if chain else None
    # Python 3.11 and 3.12 keep it to themselves; 3.13 has the method above.
    report = getattr(getattr(engine, "_sslobj", None), "get_verified_chain", None)
    chain = report() if report is not None else None
    return fingerprint(ssl.PEM_cert_to_DER_cert(chain[-1].public_bytes())) if chain else None
