"""Signing in to the admin port by a token, and out: what a browser does in place of `Authorization`.

The token comes in a form, over TLS or the loopback alone, and goes no further: the browser gets a session in a cookie
that no script reads (HttpOnly), no other site sends (SameSite=Strict), and no plain connection carries where it was
made over TLS (Secure, `__Host-`).
"""

from __future__ import annotations

from aiohttp import web

from broker.runtime.metrics import Metrics, declare
from proxy.access.audit import Audit, Who
from proxy.access.sessions import Sessions
from proxy.admin.console.templating import environment
from proxy.admin.entry.gate import AdminGate, address_of, cookie_name, is_private

SIGN_INS = declare(
    "pyddmq_admin_sign_ins_total",
    "Sign-ins to the admin port; outcome: done, denied, limited, off (neither TLS nor the loopback)",
    ("outcome",),
)
FORM = "application/x-www-form-urlencoded"
_NO_RULES = "Sign-in is not needed: the configuration has no `access` section."
_OFF = (
    "Sign-in is off on this port: a token is accepted only over TLS or from loopback addresses. Use https "
    "(`tls.admin`), or a tunnel such as `ssh -L`."
)


class SignInPaths:
    """Answers at `/sign-in` and `/sign-out`.

    Args:
        gate: Knows who is who.
        audit: Receives sign-ins and sign-outs.
        metrics: Counts them.
    """

    def __init__(self, gate: AdminGate, audit: Audit | None, metrics: Metrics) -> None:
        self._gate = gate
        self._audit = audit
        self._metrics = metrics

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Add the paths."""
        router.add_get("/sign-in", self._page)
        router.add_post("/sign-in", self._sign_in)
        router.add_post("/sign-out", self._sign_out)

    async def _page(self, request: web.Request) -> web.StreamResponse:
        self._need_rules()
        if not is_private(request):
            return _shown(403, _OFF, is_off=True)
        return _shown(200, "")

    async def _sign_in(self, request: web.Request) -> web.StreamResponse:
        sessions = self._need_rules()
        who = Who(address=address_of(request))
        if not is_private(request):
            self._count("off")
            return _shown(403, _OFF, is_off=True)
        wait_seconds = self._gate.attempts.wait_seconds(who.address)
        if wait_seconds:
            self._count("limited")
            self._gate.note(request, who, "", "limited")
            again = int(wait_seconds) + 1
            response = _shown(429, f"Too many sign-ins from {who.address}; try again in {again} s.")
            response.headers["Retry-After"] = str(again)
            return response
        token = await _token_of(request)
        proven = None if token is None else sessions.access.proven(token)
        if proven is None:
            self._count("denied")
            self._gate.note(request, who, "", "proof")
            return _shown(401, "The token is missing, wrong or expired; ask the operator of the node for a new one.")
        self._count("done")
        before = self._gate.cookie_of(request)
        if before is not None:
            sessions.end(before)
        response = _see_other("/")
        response.set_cookie(
            cookie_name(request),
            sessions.begin(proven),
            httponly=True,
            samesite="Strict",
            secure=request.scheme == "https",
            path="/",
        )
        if self._audit is not None:
            who = Who(proven.principal, proven.way, proven.proof, who.address)
            self._audit.ended("sign_in", "done", who)
        return response

    async def _sign_out(self, request: web.Request) -> web.StreamResponse:
        sessions, cookie = self._need_rules(), self._gate.cookie_of(request)
        rights = None if cookie is None else sessions.end(cookie)
        if rights is not None and self._audit is not None:
            who = Who(rights.principal, rights.way, rights.proof, address_of(request))
            self._audit.ended("sign_out", "done", who)
        return forget_cookie(request, _see_other("/sign-in"))

    def _need_rules(self) -> Sessions:
        if self._gate.sessions is None:
            raise web.HTTPNotFound(text=_NO_RULES)
        return self._gate.sessions

    def _count(self, outcome: str) -> None:
        self._metrics.counter(SIGN_INS, outcome).add()


async def _token_of(request: web.Request) -> str | None:
    """Return the token of a form; None where there is none in it."""
    if request.content_type != FORM:
        return None
    try:
        given = (await request.post()).get("token")
    except (ValueError, LookupError):
        # No UTF-8, or of an unknown charset.
        return None
    return given.strip() if isinstance(given, str) else None


def forget_cookie(request: web.Request, response: web.StreamResponse) -> web.StreamResponse:
    """Have a browser forget its session."""
    response.del_cookie(
        cookie_name(request), httponly=True, samesite="Strict", secure=request.scheme == "https", path="/"
    )
    return response


def _see_other(path: str) -> web.Response:
    return web.Response(status=303, headers={"Location": path})


def _shown(status: int, problem: str, *, is_off: bool = False) -> web.Response:
    text = environment().get_template("sign_in.html").render(problem=problem, is_off=is_off)
    return web.Response(text=text, status=status, content_type="text/html")
