"""All TLS ports of a node: their files are read at the start, with every reload, and when they change.

New contexts are made for all ports before one of them is swapped: a file that cannot be used leaves every port as it
was, and is reported until a reading succeeds. Files are replaced one after the other, so a change is taken up once two
looks have seen the same.
"""

from __future__ import annotations

from typing import NamedTuple

import structlog

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import declare
from conf.sections.tls import TlsConfig
from proxy.tls.files import Signature, TlsContext, TlsFileBad, TlsLoader
from proxy.tls.handshakes import Handshakes
from proxy.tls.port import TlsPort

RELOADS = declare(
    "pyddmq_tls_reloads_total", "Reloads of the certificates of TLS ports: applied, refused", ("outcome",)
)
SWEEPS_A_LOOK = 5
"""How often the files are looked at: each so manieth second."""

_log = structlog.get_logger(__name__)


class Unusable(NamedTuple):
    """A file of a port that cannot be used: where its name is below `tls`, a sentence with the file, and the port."""

    path: tuple[str, ...]
    text: str
    port: str = ""


class Prepared(NamedTuple):
    """Contexts by service, and the state of the files that they were made of."""

    contexts: dict[str, TlsContext]
    signature: tuple[Signature, ...]


class TlsFilesUnusable(Exception):
    """A node cannot have its TLS ports.

    Attributes:
        unusable: Which file, and why.
    """

    def __init__(self, unusable: Unusable) -> None:
        super().__init__(f"tls.{'.'.join(unusable.path)}: {unusable.text}")
        self.unusable = unusable


class TlsPorts:
    """Those that a configuration has; none where it has none.

    Attributes:
        by_service: The ports, by "producer", "consumer" and "admin".
        refused: Why the files that were read last were not taken; "" where they were.
        refused_ms: When that was, epoch milliseconds.
    """

    def __init__(self, config: TlsConfig, loader: TlsLoader, runtime: Runtime) -> None:
        """Read the files. Raises TlsFilesUnusable."""
        self._config = config
        self._loader = loader
        self._clock = runtime.clock
        self._metrics = runtime.metrics
        handshakes = Handshakes(runtime.clock, runtime.scheduler)
        self._sweeps = 0
        self.by_service: dict[str, TlsPort] = {}
        self.refused = ""
        self.refused_ms = 0
        # As in `tried`: before the content.
        self._read = self._seen = tuple(loader.signature(config.files(name)) for name in config.listeners())
        for name in config.listeners():
            try:
                self.by_service[name] = TlsPort(
                    name,
                    config.files(name),
                    loader,
                    handshakes=handshakes,
                    handshake_seconds=config.handshake_timeout / 1000,
                    runtime=runtime,
                )
            except TlsFileBad as error:
                raise TlsFilesUnusable(Unusable(config.place(name, error.field), str(error))) from error

    def configure(self, config: TlsConfig) -> None:
        """Take over what changes live."""
        self._config = config
        for port in self.by_service.values():
            port.handshake_seconds = config.handshake_timeout / 1000

    def expiring(self) -> dict[str, int]:
        """Return when certificates expire that are to be reported: epoch milliseconds by service."""
        return self._soon({name: port.current.not_after_ms for name, port in self.by_service.items()})

    def crls_expiring(self) -> dict[str, int]:
        """Return the same of revocation lists, of which an expired one refuses all clients of its CA."""
        return self._soon(
            {
                name: port.current.crls_expire_ms
                for name, port in self.by_service.items()
                if port.current.crls_expire_ms is not None
            },
            days_max=1,
        )

    def _soon(self, ends: dict[str, int], days_max: int = 3650) -> dict[str, int]:
        warned_ms = self._clock.wall_ms() + min(days_max, self._config.expiry_warning_days) * 86_400_000
        return {name: at_ms for name, at_ms in ends.items() if at_ms <= warned_ms}

    def prepare(self) -> Prepared | Unusable:
        """Make contexts of what the files hold now; one that cannot be used is reported, and nothing changes.

        The files count as read once the contexts are in force: `look` takes up those of a reload that is refused.
        """
        signature, made = self._signature(), self.tried()
        if isinstance(made, Unusable):
            self._read = self._seen = signature
            self.refused, self.refused_ms = made.text, self._clock.wall_ms()
            self._metrics.counter(RELOADS, "refused").add()
            _log.error(
                "tls_reload_refused",
                port=made.port,
                text=f"{made.text}; the present certificates stay in force until this is fixed",
            )
        return made

    def tried(self) -> Prepared | Unusable:
        """Make contexts as `prepare`, and report nothing."""
        # Before the content: what changes between the two is found by the next look.
        signature, contexts, now_ms = self._signature(), {}, self._clock.wall_ms()
        for name, port in self.by_service.items():
            try:
                contexts[name] = made = self._loader.build(port.files)
                if made.not_after_ms <= now_ms < port.current.not_after_ms:
                    raise TlsFileBad("certificate", port.files.certificate, "has expired, and the one in force has not")
            except TlsFileBad as error:
                return Unusable(self._config.place(name, error.field), str(error), name)
        return Prepared(contexts, signature)

    def swap(self, prepared: Prepared) -> None:
        """Bring contexts into force that `prepare` made."""
        contexts = prepared.contexts
        if not contexts:
            return
        self._read = prepared.signature
        self.refused, self.refused_ms = "", 0
        self._metrics.counter(RELOADS, "applied").add()
        for name, context in contexts.items():
            self.by_service[name].swap(context)
        _log.info("tls_reloaded", ports=list(contexts), subject=next(iter(contexts.values())).subject)

    def look(self) -> None:
        """Read the files again if they are others than those read last, and the same as at the last look."""
        now = self._signature()
        seen, self._seen = self._seen, now
        if now == self._read or now != seen:
            return
        prepared = self.prepare()
        if not isinstance(prepared, Unusable):
            self.swap(prepared)

    def sweep(self) -> None:
        """See `TlsPort.sweep`; and look at the files, every few times."""
        for port in self.by_service.values():
            port.sweep()
        self._sweeps += 1
        if self._sweeps % SWEEPS_A_LOOK == 0:
            self.look()

    def _signature(self) -> tuple[Signature, ...]:
        return tuple(self._loader.signature(port.files) for port in self.by_service.values())
