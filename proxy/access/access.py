"""Access of one node: the policy in force, who connections are by it, and its change.

A policy is a configuration with what its files say; another one takes its place whole or not at all. Who is asked for
rights names what is known of a connection: what it proved, its certificate, its address (in this order; a proof that
fails is never followed by the others).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from broker.deduplication.numbers import NAME_BYTES, parse_key
from broker.runtime.metrics import declare
from broker.runtime.rate_limited_log import RateLimitedLog
from broker.runtime.seams import Clock
from conf.sections import access_files
from conf.sections.access import ANONYMOUS, AccessConfig
from conf.sections.access_files import AccessFiles, AccessUnreadable, Signature
from proxy.access import tokens
from proxy.access.jwts import Jwts
from proxy.access.owners import Owners
from proxy.access.rights import Rights
from proxy.access.rules import Patterns, Rules
from proxy.tls.peer_certificate import PeerCertificate

DENIED = declare(
    "pyddmq_access_denied_total",
    "Denied calls, results sent with calls, and requests to the admin port (docs/security.md). reason: "
    "right (no rule allows it), owner (another principal owns it), proof (invalid token), site (a page or "
    "name of another site), limited (too many sign-ins)",
    ("method", "reason"),
)
SIGNED_IN = declare("pyddmq_access_sign_ins_total", "Connections authenticated by a token", ("way",))
OPEN = declare(
    "pyddmq_access_open",
    "1 with `access: open`: the Thrift ports have no access rules, and may listen on any address",
    kind="gauge",
)

DENIED_WAY = "denied"
"""Of a connection that failed to prove who it is; it is about to end."""

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Run = Callable[[Callable[[], object], Callable[[object], None]], None]
"""Runs the first beside the loop, then the second in the loop with what it returned."""


class Files(Protocol):
    """Reads what a configuration names; `conf.sections.access_files` does."""

    def read(self, config: AccessConfig) -> AccessFiles:
        """Read all. Raises AccessUnreadable."""

    def signature(self, config: AccessConfig) -> Signature:
        """Return the identity of a file's state."""


class Policy:
    """A configuration, with what its files say."""

    def __init__(self, config: AccessConfig, files: AccessFiles, signature: Signature) -> None:
        """Compile. Raises AccessUnreadable: a key is none."""
        self.config = config
        self.signature = signature
        self.files = files
        self.tokens = files.tokens
        self.jwts = Jwts(config, files.keys)
        self.rules = Rules(config)
        self._networks: list[tuple[Network, str]] = [
            (ipaddress.ip_network(each.cidr), each.principal) for each in config.networks
        ]
        self._certificates = [
            (each.subject, None if each.name is None else Patterns([each.name]), each.principal)
            for each in config.certificates
        ]

    def of_network(self, host: str) -> str | None:
        """Return whom an address is of."""
        try:
            address = ipaddress.ip_address(host.partition("%")[0])
        except ValueError:
            return None
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        for network, principal in self._networks:
            if address in network:
                return principal
        return None

    def of_certificate(self, certificate: PeerCertificate) -> str | None:
        """Return whom a certificate is of."""
        for subject, name, principal in self._certificates:
            if name is None:
                if subject == certificate.subject:
                    return principal
            elif any(name.match(each) is not None for each in certificate.names):
                return principal
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proven:
    """What a token proved.

    Attributes:
        principal: Whose it is.
        way: `token` or `jwt`.
        expires_ms: From when on it proves nothing.
        proof: Its id, or the name of its key.
    """

    principal: str
    way: str
    expires_ms: int
    proof: str


class Access:
    """What one node knows of who may do what.

    Attributes:
        policy: In force.
        followers: Told of the policy before, once another one is in force.
        owners: Whose producers' names are; None until the store is open.
    """

    def __init__(
        self, config: AccessConfig, *, clock: Clock, limited_log: RateLimitedLog, files: Files = access_files
    ) -> None:
        """Read the files. Raises AccessUnreadable."""
        self._clock = clock
        self._limited_log = limited_log
        self._files = files
        self.policy = self.prepared(config)
        self.followers: list[Callable[[Policy], None]] = []
        self.owners: Owners | None = None
        self._is_reading = False

    def prepared(self, config: AccessConfig) -> Policy:
        """Make the policy of a configuration; nothing changes. Raises AccessUnreadable."""
        # Before the content: what changes between the two is found by the next look.
        signature = self._files.signature(config)
        known: Policy | None = getattr(self, "policy", None)
        if known is not None and signature == known.signature and _named(config) == _named(known.config):
            # A reload of the rules reads no tokens again: the loop waits for a reload.
            return Policy(config, known.files, signature)
        return Policy(config, self._files.read(config), signature)

    def look(self, run: Run, changed: Callable[[Policy], None]) -> None:
        """Take what the files say now, where they have changed; what cannot be read leaves all as it is.

        Args:
            run: Runs what reads them beside the loop, and then, in the loop, what takes its result.
            changed: Told of the policy before, once another one is in force.
        """
        policy = self.policy
        if self._is_reading or self._files.signature(policy.config) == policy.signature:
            return
        self._is_reading = True

        def read() -> Policy | Exception:
            try:
                return self.prepared(policy.config)
            except Exception as error:
                return error

        def take(found: object) -> None:
            self._is_reading = False
            if isinstance(found, AccessUnreadable):
                text = f"{found}: the files read before stay in force"
                self._limited_log.note("access_file_refused", text=text)
            elif isinstance(found, Exception):
                self._limited_log.fault("access_file_fault", found, kind="access")
            elif isinstance(found, Policy) and self.policy is policy:
                # A reload that came meanwhile has read the files itself.
                self.policy = found
                changed(policy)

        try:
            run(read, take)
        except RuntimeError as error:
            # The system has no more threads: the next look may have one.
            take(error)

    # Who it is

    def rights_of(self, host: str, certificate: PeerCertificate | None) -> Rights:
        """Return what a connection may do that has proved nothing."""
        policy = self.policy
        found = None if certificate is None else policy.of_certificate(certificate)
        if found is not None:
            return Rights(found, policy.rules, way="certificate")
        found = policy.of_network(host)
        if found is not None:
            return Rights(found, policy.rules, way="network")
        return Rights(ANONYMOUS, policy.rules, way=ANONYMOUS)

    def proven(self, text: str) -> Proven | None:
        """Return what a token proves; None where it proves nothing."""
        now_ms = self._clock.wall_ms()
        if text.startswith(tokens.PREFIX):
            stored = tokens.find(text, self.policy.tokens, now_ms)
            if stored is None:
                return None
            return Proven(principal=stored.principal, way="token", expires_ms=stored.expires_ms, proof=stored.id)
        signed = self.policy.jwts.find(text, now_ms)
        if signed is None:
            return None
        return Proven(principal=signed.principal, way="jwt", expires_ms=signed.expires_ms, proof=signed.key)

    def rights_by(self, proven: Proven) -> Rights:
        """Return what a connection may do that proved who it is."""
        return Rights(
            proven.principal, self.policy.rules, way=proven.way, expires_ms=proven.expires_ms, proof=proven.proof
        )

    def renewed(self, rights: Rights, host: str, certificate: PeerCertificate | None, before: Policy) -> Rights | None:
        """Return what takes the place of rights by the policy before; None where its proof is none any more."""
        policy = self.policy
        if rights.way == DENIED_WAY:
            return rights
        if rights.way == "token":
            stored = policy.tokens.get(rights.proof)
            if stored is None or stored != before.tokens.get(rights.proof):
                return None
        elif rights.way == "jwt":
            if not policy.jwts.knows(rights.proof, before.jwts):
                return None
        else:
            return self.rights_of(host, certificate)
        return Rights(rights.principal, policy.rules, way=rights.way, expires_ms=rights.expires_ms, proof=rights.proof)

    def is_over(self, rights: Rights) -> bool:
        """Whether its proof has expired."""
        return rights.expires_ms is not None and self._clock.wall_ms() >= rights.expires_ms

    # Whose what is

    def owns(self, key: bytes, principal: str) -> bool:
        """Whether the producer that a message's number names is a principal's; see `Owners.claim`. Raises OSError."""
        owners = self.owners
        assert owners is not None, "messages are taken once the store is open"
        owner = owners.of(key[:NAME_BYTES])
        if owner is not None:
            return owner == principal
        # What is not a number is refused as such, and belongs to no principal.
        return parse_key(key) is None or owners.claim(key[:NAME_BYTES], principal)

    def sync(self) -> None:
        """Make durable what became known; called about once a second."""
        if self.owners is not None:
            try:
                self.owners.sync()
            except OSError as error:
                self._limited_log.note("owners_not_synced", text=str(error))


def _named(config: AccessConfig) -> list[tuple[str, str | None]]:
    """What files a configuration names, and as what."""
    return [("tokens", config.tokens), *((key.name, key.file) for key in config.jwt)]
