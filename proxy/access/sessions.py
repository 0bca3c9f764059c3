"""Sessions of the admin port: what a browser holds in place of a token, for a while.

A session is 256 random bits in a cookie, kept here as their SHA-256 and in memory alone: a restart ends all. It is of
the token that began it, and ends with that: when it expires, is revoked, or its key goes. It also ends when it has not
been used for `IDLE_SECONDS`, after `SECONDS_MAX` in any case, and when its owner signs out. There are at most
`SESSIONS_MAX`, and `PRINCIPAL_MAX` of one principal: beyond that the one that was idle longest ends.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

from broker.runtime.metrics import Metrics, declare
from broker.runtime.seams import Clock
from proxy.access.access import Access, Policy, Proven
from proxy.access.rights import Rights

OPEN = declare("pyddmq_admin_sessions", "Sessions of the admin port", kind="gauge")

SECRET_BYTES = 32
IDLE_SECONDS = 30 * 60.0
SECONDS_MAX = 12 * 3600.0
SESSIONS_MAX = 1_024
PRINCIPAL_MAX = 16


class _Session:
    __slots__ = ("began", "rights", "used")

    def __init__(self, rights: Rights, now: float) -> None:
        self.rights = rights
        self.began = self.used = now


class Sessions:
    """The sessions of one node.

    Args:
        access: Says what tokens prove.
        clock: Its clock that continues while the machine sleeps measures them.
        random_bytes: Returns N random bytes that cannot be guessed.
        metrics: Counts them.
    """

    def __init__(self, access: Access, clock: Clock, random_bytes: Callable[[int], bytes], metrics: Metrics) -> None:
        self.access = access
        self._clock = clock
        self._random_bytes = random_bytes
        self._shown = metrics.counter(OPEN)
        self._sessions: dict[bytes, _Session] = {}
        """By the SHA-256 of what the cookie holds; the last used is last."""
        access.followers.append(self.review)

    def __len__(self) -> int:
        return len(self._sessions)

    def begin(self, proven: Proven) -> str:
        """Begin one of whom a token proved; returns what the cookie is to hold."""
        self._end_some(proven.principal)
        secret = self._random_bytes(SECRET_BYTES)
        assert len(secret) == SECRET_BYTES, "256 bits"
        rights = self.access.rights_by(proven)
        self._sessions[_digest(secret.hex())] = _Session(rights, self._clock.since_boot())
        self._shown.value = len(self._sessions)
        return secret.hex()

    def find(self, cookie: str, *, is_use: bool) -> Rights | None:
        """Return whose session a cookie holds; None where it is none any more.

        Args:
            cookie: Whatever a browser sent.
            is_use: Whether a person does something, and not a page by itself.
        """
        digest = _digest(cookie)
        session = self._sessions.get(digest)
        if session is None:
            return None
        now = self._clock.since_boot()
        if self._is_over(session, now):
            self._forget(digest)
            return None
        if is_use:
            session.used = now
            self._sessions[digest] = self._sessions.pop(digest)
        return session.rights

    def end(self, cookie: str) -> Rights | None:
        """End a session; returns whose it was."""
        session = self._sessions.get(_digest(cookie))
        self._forget(_digest(cookie))
        return None if session is None else session.rights

    def review(self, before: Policy) -> None:
        """End those whose token the policy in force does not know any more, and decide again for the others."""
        for digest, session in list(self._sessions.items()):
            # A session is of a token: address and certificate of its browser say nothing.
            renewed = self.access.renewed(session.rights, "", None, before)
            if renewed is None:
                self._forget(digest)
            else:
                session.rights = renewed

    def _is_over(self, session: _Session, now: float) -> bool:
        return (
            now - session.used >= IDLE_SECONDS
            or now - session.began >= SECONDS_MAX
            or self.access.is_over(session.rights)
        )

    def _end_some(self, principal: str) -> None:
        """Make room for one more of a principal."""
        now = self._clock.since_boot()
        for digest, session in list(self._sessions.items()):
            if self._is_over(session, now):
                del self._sessions[digest]
        own = [digest for digest, each in self._sessions.items() if each.rights.principal == principal]
        if len(own) >= PRINCIPAL_MAX:
            del self._sessions[own[0]]
        elif len(self._sessions) >= SESSIONS_MAX:
            del self._sessions[next(iter(self._sessions))]

    def _forget(self, digest: bytes) -> None:
        self._sessions.pop(digest, None)
        self._shown.value = len(self._sessions)


def _digest(cookie: str) -> bytes:
    return hashlib.sha256(cookie.encode("utf-8", "surrogateescape")).digest()
