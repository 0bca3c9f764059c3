"""The TLS side of one port: the context in force, its handshakes, and the certificates of who is connected."""

from __future__ import annotations

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from conf.sections.tls import TlsFiles
from proxy.tls.channel import Above, TlsChannel
from proxy.tls.failures import SENTENCES, TlsFailure
from proxy.tls.files import TlsContext, TlsLoader
from proxy.tls.handshakes import Handshakes

HANDSHAKES = declare("pyddmq_tls_handshakes_total", "TLS handshakes that succeeded", ("service", "version"))
FAILED = declare(
    "pyddmq_tls_handshake_failures_total",
    f"TLS handshakes that failed: {', '.join(SENTENCES)}",
    ("service", "reason"),
)
ENDED = declare(
    "pyddmq_tls_connections_ended_total",
    "Connections closed since their client certificate is no longer valid: expired, unknown_ca, revoked",
    ("service", "reason"),
)
EXPIRES = declare(
    "pyddmq_tls_certificate_expires_seconds",
    "Seconds until the certificate of a TLS port expires, negative afterwards; as of the last second",
    ("service",),
    kind="gauge",
)
CRL_EXPIRES = declare(
    "pyddmq_tls_crl_expires_seconds",
    "Seconds until the first revocation list of a TLS port expires; then the clients of its CA are refused",
    ("service",),
    kind="gauge",
)


class TlsPort:
    """Makes the channels of one port.

    Attributes:
        service: "producer", "consumer" or "admin".
        files: Of what its contexts are made.
        current: The context in force.
        handshake_seconds: How long a handshake may take.
    """

    def __init__(
        self,
        service: str,
        files: TlsFiles,
        loader: TlsLoader,
        *,
        handshakes: Handshakes,
        handshake_seconds: float,
        runtime: Runtime,
    ) -> None:
        """Set up, with a first context.

        Args:
            service: Its name.
            files: Where its certificates stand.
            loader: Reads them.
            handshakes: Turns of handshakes, of all ports of a node.
            handshake_seconds: How long one may take.
            runtime: The node's.

        Raises:
            TlsFileBad: A file cannot be used.
        """
        self.service = service
        self.files = files
        self.current = loader.build(files)
        self.handshake_seconds = handshake_seconds
        self._handshakes = handshakes
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        self._limited_log = runtime.limited_log
        self._shaking: dict[TlsChannel, float] = {}
        """Whose handshake is not over, with when they were accepted, the oldest first."""
        self._certified: dict[TlsChannel, None] = {}
        """Who has shown a certificate."""
        # Before the first look: an alert on a gauge of 0 would go off at each start.
        self._show_expiry()

    def channel(self, above: Above) -> TlsChannel:
        """Put TLS under a connection that is about to be accepted."""
        return TlsChannel(above, self)

    def swap(self, context: TlsContext) -> None:
        """Have new handshakes made with another context, and end the connections that it would refuse."""
        self.current = context
        self._show_expiry()
        for channel in list(self._certified):
            why = self.refusal(channel, context)
            if why is not None:
                self._end(channel, why)

    def refusal(self, channel: TlsChannel, context: TlsContext) -> str | None:
        """Return why a client's certificate does not hold under a context; see `ChannelPort.refusal`."""
        certificate = channel.certificate
        if certificate is None:
            return None
        if certificate.not_after_ms <= self._clock.wall_ms():
            return "expired"
        if channel.context is context:
            return None
        if channel.anchor is not None:
            stands = channel.anchor in context.anchors
        else:
            # The CA behind it is unknown: none of them may have been removed.
            stands = channel.context is not None and channel.context.anchors <= context.anchors
        if not stands:
            return "unknown_ca"
        return "revoked" if context.is_revoked(channel.der) else None

    def sweep(self) -> None:
        """Close handshakes that take too long and connections whose certificate has expired. Every second or so."""
        oldest = self._clock.monotonic() - self.handshake_seconds
        for channel, since in list(self._shaking.items()):
            if since > oldest:
                break
            channel.fail(TlsFailure("timeout"), at_once=True)
        now_ms = self._clock.wall_ms()
        for channel in list(self._certified):
            if channel.certificate is not None and channel.certificate.not_after_ms <= now_ms:
                self._end(channel, "expired")
        self._show_expiry()

    def _show_expiry(self) -> None:
        now_ms = self._clock.wall_ms()
        self._metrics.counter(EXPIRES, self.service).value = (self.current.not_after_ms - now_ms) // 1000
        if self.current.crls_expire_ms is not None:
            self._metrics.counter(CRL_EXPIRES, self.service).value = (self.current.crls_expire_ms - now_ms) // 1000

    @property
    def shaking(self) -> int:
        """How many handshakes are not over."""
        return len(self._shaking)

    # Calls of channels.

    def began(self, channel: TlsChannel) -> None:
        """See `ChannelPort.began`."""
        self._shaking[channel] = self._clock.monotonic()

    def ask(self, channel: TlsChannel) -> None:
        """See `ChannelPort.ask`."""
        self._handshakes.ask(channel)

    def finished(self, channel: TlsChannel, version: str) -> None:
        """See `ChannelPort.finished`."""
        self._shaking.pop(channel, None)
        self._metrics.counter(HANDSHAKES, self.service, version).add()
        if channel.certificate is not None:
            self._certified[channel] = None

    def failed(self, channel: TlsChannel, failure: TlsFailure) -> None:
        """Count it, and log it once a minute for each reason (D25)."""
        self._shaking.pop(channel, None)
        self._metrics.counter(FAILED, self.service, failure.reason).add()
        self._limited_log.note(
            "tls_handshake_failed",
            kind=f"{self.service} {failure.reason}",
            service=self.service,
            client=channel.peer,
            reason=failure.reason,
            text=failure.text,
        )

    def gone(self, channel: TlsChannel) -> None:
        """See `ChannelPort.gone`."""
        self._shaking.pop(channel, None)
        self._certified.pop(channel, None)

    def _end(self, channel: TlsChannel, why: str) -> None:
        self._certified.pop(channel, None)
        self._metrics.counter(ENDED, self.service, why).add()
        certificate = channel.certificate
        self._limited_log.note(
            "tls_connection_ended",
            kind=f"{self.service} {why}",
            service=self.service,
            client=channel.peer,
            reason=why,
            subject="" if certificate is None else certificate.subject,
            text=SENTENCES[why],
        )
        channel.end()
