"""Who asks the admin port for something, and may he: looked at before anything else of a request.

1. Under which name it is asked, and by a page of which site (`Host`, `Origin`, `Sec-Fetch-Site`): a name that an
   attacker bound to this machine opens nothing.
2. Who it is, where there are rules: by a token in `Authorization`, else by a session, else by a client certificate,
   else by its network. A token or a session that is none is never followed by the others.
3. Whether a rule gives that one what the route needs.

Where there are no rules, changes and what shows bodies need the token of `node.adminTokenFile`, if there is one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import NoReturn
from urllib.parse import urlsplit

from aiohttp import web

from broker.runtime.seams import Clock
from conf.sections.admin import AdminConfig
from proxy.access.access import DENIED, Access, Proven
from proxy.access.audit import Audit, Who
from proxy.access.rights import Rights
from proxy.access.rules import EVERYTHING, Permission
from proxy.access.sessions import Sessions
from proxy.admin.entry.rights import OWN, Need
from proxy.operate.changes.desk import AdminToken, Asker, Change, ChangeBody, ChangeRefused
from proxy.operate.live_node import LiveNode
from proxy.port.network import host_of

# Paths and parameters that an earlier version had: each is refused with a sentence that names its replacement.

REMOVED: Mapping[str, str] = MappingProxyType(
    {
        "/v3/": "use /api/lag, or /metrics with Prometheus",
        "/burrow/admin": "use /healthz",
        "/api/lag/alarms": "use /api/lag, and route alarms by /metrics with Prometheus (deploy/prometheus)",
        "/api/lag/mute": "set a silence in Alertmanager (deploy/prometheus)",
        "/api/lag?mode": "set `delayTimeThreshold` and `committedLagThreshold` of the subscription",
    }
)
"""By path, by the beginning of paths (ends with `/`), or by a path and its parameter: what to do instead."""


def refuse_removed(path: str, parameters: Collection[str]) -> None:
    """Refuse a path or a parameter that was removed, under any method.

    Raises:
        HTTPGone: The path was removed.
        HTTPBadRequest: A parameter of the path was removed.
    """
    for removed, instead in REMOVED.items():
        old_path, _, parameter = removed.partition("?")
        text = f"{removed} was removed; {instead}."
        if parameter and path == old_path and parameter in parameters:
            raise web.HTTPBadRequest(text=text)
        if not parameter and (path == old_path or (old_path.endswith("/") and path.startswith(old_path))):
            raise web.HTTPGone(text=text)


# How often an address may try to sign in: `BURST` times at once, and once in `SECONDS_EACH` in the long run.
#
# Tokens have nothing to guess; this bounds the work and the lines that an attacker can make by trying. IPv6 counts by
# /64, of which one party may have all. There is a place for `ADDRESSES_MAX` addresses; while all are taken, new ones
# share one.

BURST = 10
SECONDS_EACH = 6.0
ADDRESSES_MAX = 4_096
_OTHERS = "others"


class Attempts:
    """Counts attempts by address."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._free: dict[str, float] = {}
        """By address: when it will have all its tries again."""

    def wait_seconds(self, host: str) -> float:
        """Count an attempt from an address; returns 0, or in how many seconds it may make one, and counts nothing."""
        now = self._clock.monotonic()
        name = self._place(_network(host), now)
        free = max(self._free.get(name, now), now) + SECONDS_EACH
        wait_seconds = free - now - BURST * SECONDS_EACH
        if wait_seconds > 0:
            return wait_seconds
        self._free[name] = free
        return 0.0

    def _place(self, name: str, now: float) -> str:
        if name in self._free or len(self._free) < ADDRESSES_MAX:
            return name
        self._free = {each: free for each, free in self._free.items() if free > now}
        return name if len(self._free) < ADDRESSES_MAX else _OTHERS


def _network(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


AGAIN = "again"
"""Parameter of requests that a page makes by itself: they keep no session alive."""
NEED_ACTIONS = frozenset((Permission.READ_BODIES, Permission.ADMINISTER))
_TEXT_MAX = 255


class Unknown(ChangeRefused):
    """Nobody is known to ask: a browser is led to the sign-in page.

    Attributes:
        reason: What it brought that proves nothing: `proof` (a token), `session`, or nothing.
    """

    def __init__(self, text: str, reason: str = "") -> None:
        super().__init__(401, text)
        self.reason = reason


class AdminGate:
    """Looks for one port.

    Args:
        node: The node.
        own_host: Name or address that the port is configured to listen on.
        token: Of nodes without rules.
        audit: Receives denials.
        settings: The section `admin`.
        random_bytes: As in `Sessions`.

    Attributes:
        sessions: Of browsers; None where there are no rules.
        attempts: To sign in.
    """

    def __init__(
        self,
        node: LiveNode,
        own_host: str,
        token: AdminToken,
        *,
        access: Access | None,
        audit: Audit | None,
        settings: Callable[[], AdminConfig],
        random_bytes: Callable[[int], bytes],
    ) -> None:
        self._node = node
        self._own_host = own_host.lower()
        self._token = token
        self._audit = audit
        self._settings = settings
        self.attempts = Attempts(node.clock)
        self.sessions = None if access is None else Sessions(access, node.clock, random_bytes, node.metrics)

    # The request as such

    def check_site(self, request: web.Request) -> None:
        """Refuse what a web page of another site could send through a person's browser, DNS rebinding included.

        Raises:
            ChangeRefused: It names another host, or comes from a page of another origin.
        """
        try:
            refuse_other_sites(request, (self._own_host, *self._settings().hosts))
        except ChangeRefused as refusal:
            self.note(request, Who(address=address_of(request)), "", "site")
            raise refusal from None

    def enter(self, request: web.Request, *, is_change: bool = False) -> Asker:
        """Find out who asks.

        Raises:
            ChangeRefused: It is a page of another site (403), a proof that is none (401), or not the node's token.
        """
        self.check_site(request)
        if is_change and self._settings().read_only and _is_browsers(request):
            raise ChangeRefused(403, "The console is read-only (admin.readOnly); use the CLI.")
        address = address_of(request)
        if self.sessions is None:
            way = self.check_token(request) if is_change else ""
            asker = Asker(Who(way=way, address=address), None)
        else:
            asker = self._of_rules(request, self.sessions, address, is_change=is_change)
        # The one that is looked at must be the one that is answered: bodies may need a token without rules, too.
        if len(set(request.query)) != len(request.query):
            raise ChangeRefused(400, "A parameter is repeated; pass each parameter once.")
        return asker

    def check_token(self, request: web.Request) -> str:
        """Pass a request on that has the token of a node without rules; returns how its sender is known."""
        try:
            return "adminToken" if self._token.check(request.headers.get("Authorization")) else ""
        except ChangeRefused as refusal:
            if refusal.status == 401:
                self.note(request, Who(address=address_of(request)), "", "proof")
            raise

    # Who it is

    def _of_rules(self, request: web.Request, sessions: Sessions, address: str, *, is_change: bool) -> Asker:
        try:
            return self._identified(request, sessions, address, is_change=is_change)
        except Unknown as error:
            if error.reason == "proof":
                self.note(request, Who(address=address), "", "proof")
            raise

    def _identified(self, request: web.Request, sessions: Sessions, address: str, *, is_change: bool) -> Asker:
        access = sessions.access
        given = request.headers.get("Authorization")
        if given is not None:
            return _asker(access.rights_by(self._proven(request, access, given)), address)
        cookie = self.cookie_of(request)
        if cookie is not None:
            rights = sessions.find(cookie, is_use=AGAIN not in request.query)
            if rights is None:
                raise Unknown("This session has ended; sign in again.", "session")
            if is_change and not _is_browsers(request):
                # Whatever browser brings the cookie, it says which page had it sent.
                raise ChangeRefused(403, "A change by a session needs the Origin header, which browsers send.")
            return _asker(rights, address, by_session=True)
        transport = request.transport
        certificate = None if transport is None else transport.get_extra_info("client_certificate")
        return _asker(access.rights_of(address, certificate), address)

    def _proven(self, request: web.Request, access: Access, given: str) -> Proven:
        kind, _, text = given.partition(" ")
        if not is_private(request):
            text = "A token is accepted only over TLS or from loopback addresses; use https."
        elif kind.lower() == "bearer" and (proven := access.proven(text.strip())) is not None:
            return proven
        else:
            text = "The token is missing, wrong or expired; send `Authorization: Bearer <token>` with a new one."
        raise Unknown(text, "proof")

    def cookie_of(self, request: web.Request) -> str | None:
        """Return what the cookie of a session holds; None where there is none."""
        return request.cookies.get(cookie_name(request))

    # What it may

    def allow(self, request: web.Request, asker: Asker, need: Need) -> None:
        """Pass on who may read something. Raises ChangeRefused."""
        if need.action is None:
            return
        if asker.rights is None:
            if need.action in NEED_ACTIONS:
                self.check_token(request)
            return
        if need is OWN and not asker.rights.has_any:
            self._deny(request, asker, need.action, EVERYTHING)
        self._allow(request, asker, asker.rights, need.action, need.on(request))

    def allow_change(self, request: web.Request, asker: Asker, change: Change, body: ChangeBody) -> None:
        """Pass on who may change something. Raises ChangeRefused."""
        if asker.rights is not None:
            self._allow(request, asker, asker.rights, change.action, change.on(body))

    def may_see_all(self, request: web.Request) -> bool:
        """Whether the client may view everything; for the details of a probe, and without a denial."""
        if self.sessions is None:
            return True
        try:
            refuse_other_sites(request, (self._own_host, *self._settings().hosts))
            asker = self._identified(request, self.sessions, address_of(request), is_change=False)
        except ChangeRefused:
            return False
        return may_see_all(asker)

    def _allow(
        self, request: web.Request, asker: Asker, rights: Rights, action: Permission, resources: Sequence[str]
    ) -> None:
        for resource in resources:
            if not rights.may(action, resource):
                self._deny(request, asker, action, resource)

    def _deny(self, request: web.Request, asker: Asker, action: Permission, resource: str) -> NoReturn:
        self.note(request, asker.who, resource, "right")
        if asker.who.way == "anonymous":
            raise Unknown("Authentication required: sign in, or send `Authorization: Bearer <token>`.")
        what = "everything ('*')" if resource == EVERYTHING else repr(resource[:_TEXT_MAX])
        text = f"{asker.who.principal} is not allowed to {action} {what}; ask the operator of the node for a rule."
        raise ChangeRefused(403, text)

    def note(self, request: web.Request, who: Who, resource: str, reason: str) -> None:
        """Count a denial and log it, once a minute for each route and reason."""
        route = request.match_info.route.resource
        # Of a request that no route has, neither path nor method: both are whatever its sender likes.
        what = "?" if route is None else f"{request.method} {route.canonical}"
        self._node.metrics.counter(DENIED, what, reason).add()
        self._node.limited_log.note(
            "access_denied",
            kind=f"{what} {reason}",
            method=what,
            reason=reason,
            principal=who.principal,
            way=who.way,
            client=who.address,
            resource=resource[:_TEXT_MAX],
        )
        if self._audit is not None:
            self._audit.denied(what, who, resource=resource[:_TEXT_MAX], reason=reason)


def may_see_all(asker: Asker) -> bool:
    """Whether a principal may view everything."""
    return asker.rights is None or asker.rights.may(Permission.VIEW, EVERYTHING)


def _asker(rights: Rights, address: str, *, by_session: bool = False) -> Asker:
    return Asker(Who(rights.principal, rights.way, rights.proof, address), rights, by_session)


def _is_browsers(request: web.Request) -> bool:
    """Whether a request says which page sent it, as browsers do."""
    return "Origin" in request.headers or "Sec-Fetch-Site" in request.headers


def address_of(request: web.Request) -> str:
    """Return the address that a request came from."""
    return host_of(request.remote) if request.remote else "unknown"


def is_private(request: web.Request) -> bool:
    """Whether a request's connection is private: by TLS, or on the loopback."""
    if request.scheme == "https":
        return True
    try:
        return ipaddress.ip_address(address_of(request).partition("%")[0]).is_loopback
    except ValueError:
        return False


def cookie_name(request: web.Request) -> str:
    """Return what the cookie is called: each port has its own, for browsers distinguish hosts and not ports."""
    transport = request.transport
    own = None if transport is None else transport.get_extra_info("sockname")
    port = own[1] if isinstance(own, tuple) else 0
    return f"{'__Host-' if request.scheme == 'https' else ''}pyddmq-{port}"


def refuse_other_sites(request: web.Request, hosts: Sequence[str]) -> None:
    """Refuse what a web page of another site could send, or what asks under another name than these.

    Raises:
        ChangeRefused: It names another host, or comes from a page of another origin.
    """
    name = _host_name(f"//{request.host}")
    if name != "localhost" and name not in hosts and not _is_address(name):
        text = f"The Host header names {name!r}; use the node's address or localhost, or list the name in admin.hosts."
        raise ChangeRefused(403, text)
    origin = request.headers.get("Origin")
    # Of a page that came by https from what passes plain HTTP on to here: no other site has this host and port.
    own = (f"{request.scheme}://{request.host}", f"https://{request.host}")
    if origin is not None and origin not in own:
        raise ChangeRefused(403, f"Requests from a page of {origin!r} are refused.")
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        raise ChangeRefused(403, "Requests from a page of another site are refused.")


def _host_name(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
