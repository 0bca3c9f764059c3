"""The pages about who may do what: to sign in, and the audit trail. Plain HTML as the status page, without scripts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from proxy.access.views import AuditEntry
from proxy.admin.style import CSS
from proxy.admin.tables import Cell, table
from proxy.operate.moments import moment_text
from proxy.operate.text import age

AGAIN = "again"
"""Parameter of requests that a page makes by itself: they keep no session alive."""
SHOWN_MAX = 200
"""Entries of the audit trail on its page."""
_CHIPS = {"done": "good", "failed": "bad", "denied": "bad", "refused": "warn", "asked": "plain"}
_REASONS = {
    "right": "no rule allows it",
    "owner": "another principal owns it",
    "proof": "invalid token",
    "site": "a page or a name of another site",
    "limited": "too many tries",
}
_WAYS = {"token": "token", "jwt": "JWT", "certificate": "certificate", "network": "network", "adminToken": "adminToken"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Viewer:
    """Who looks at a page, where there are rules.

    Attributes:
        principal: Who.
        way: How that is known.
        by_session: Whether he signed in, and so may sign out.
        may_sign_in: Whether he could.
        may_administer: Whether he may see the audit trail.
    """

    principal: str
    way: str
    by_session: bool
    may_sign_in: bool
    may_administer: bool


def begin(title: str, *, refresh: str = "") -> str:
    """Return what each page begins with, up to its header."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta name="viewport" content="width=device-width,initial-scale=1">{refresh}'
        f"<title>{escape(title)}</title><style>{CSS}</style></head><body><main><header>"
        '<h1><a href="/">pyddmq</a></h1>'
    )


END = "</main></body></html>"


def viewer_line(viewer: Viewer | None) -> str:
    """Return who looks, and the way in or out."""
    if viewer is None:
        return ""
    name = f'<b title="known by {escape(viewer.way)}">{escape(viewer.principal)}</b>'
    if viewer.by_session:
        button = '<form method="post" action="/sign-out"><button class="link">sign out</button></form>'
        return f'<span class="who">{name}{button}</span>'
    return f'<span class="who">{name}{"<a href=/sign-in>sign in</a>" if viewer.may_sign_in else ""}</span>'


def sign_in(*, problem: str = "", is_off: bool = False) -> str:
    """Return the page to sign in by a token.

    Args:
        problem: Why it did not come about; empty for none.
        is_off: Whether it is not offered here.
    """
    parts = [begin("Sign in · pyddmq"), "</header>"]
    if problem:
        parts.append(f'<ul class="look"><li class="{"warn" if is_off else "bad"}">{escape(problem)}</li></ul>')
    if not is_off:
        parts.append(
            '<form class="card" method="post" action="/sign-in"><h2>Sign in</h2><label '
            'for="token">Token</label><input id="token" name="token" type="password" autocomplete="off" '
            'spellcheck="false" required autofocus><p>A token of <code>pyddmq access token create</code>, '
            "or a JWT. It is not stored: this browser gets a session, which ends after 30 minutes without "
            "use, after 12 hours, and when the token expires.</p><button>Sign in</button></form>"
        )
    parts += ['<p class="dim"><a href="/">The status page</a>, if you are already signed in.</p>', END]
    return "".join(parts)


def audit(entries: Sequence[AuditEntry], total: int, now_ms: int, viewer: Viewer | None) -> str:
    """Return the page of the audit trail, the newest first."""
    return "".join(
        (
            begin("Audit trail · pyddmq"),
            f"<span>audit trail</span>{viewer_line(viewer)}<small>{moment_text(now_ms)}</small></header>",
            audit_table(entries, total, now_ms, rows_max=SHOWN_MAX),
            (
                '<footer><a href="/">status page</a> · <a href="/api/audit?limit=1000">as JSON</a> · full '
                "trail: files in pyddmq/audit of the data directory</footer>"
            ),
            END,
        )
    )


def audit_table(entries: Sequence[AuditEntry], total: int, now_ms: int, *, rows_max: int) -> str:
    """Return a table of entries; `total`: how many are known."""
    rows = [
        [
            Cell(age(max(0, now_ms - each.at_ms) / 1000) + " ago", "t", title=moment_text(each.at_ms)),
            Cell(each.principal or "–", "k", title=_proof(each)),
            Cell(each.what, "c"),
            Cell(each.outcome if each.count == 1 else f"{each.outcome} {each.count:,}", chip=_CHIPS.get(each.outcome)),
            Cell(each.asked or each.resource, "c k"),
            Cell(_REASONS.get(each.why, each.why) if each.outcome == "denied" else each.why, "k"),
            Cell(each.address, "c"),
        ]
        for each in entries
    ]
    header = ("When", "Who", "What", "Outcome", "Resource", "Why", "From")
    return table("Changes and denials", header, rows, "None yet.", total=total, rows_max=rows_max)


def _proof(entry: AuditEntry) -> str:
    way = _WAYS.get(entry.way, entry.way)
    return f"{way} {entry.proof}".strip()
