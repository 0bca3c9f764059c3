"""Sessions: random, kept hashed, bounded, and over when they, their token or their owner's patience are."""

from __future__ import annotations

import hashlib
from itertools import count

from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from conf.sections.access import AccessConfig, AccessRule
from conf.sections.access_files import AccessFiles, Signature, StoredToken
from proxy.access.access import Access, Policy
from proxy.access.rules import Permission
from proxy.access.sessions import IDLE_SECONDS, OPEN, PRINCIPAL_MAX, SECONDS_MAX, SESSIONS_MAX, Sessions
from proxy.access.tokens import made
from pyddmq.testing import ManualClock

START_MS = 1_700_000_000_000
VIEWS = AccessRule(principals=["*"], view=["*"])


class World:
    """Sessions of a node with rules, whose tokens a test changes."""

    def __init__(self) -> None:
        self.clock = ManualClock(START_MS)
        self.tokens: dict[str, StoredToken] = {}
        self.metrics = Metrics()
        self.access = Access(
            AccessConfig(tokens="tokens.json", rules=[VIEWS]),
            clock=self.clock,
            limited_log=RateLimitedLog(self.clock),
            files=self,
        )
        numbers = count(1)

        def random_bytes(size: int) -> bytes:
            return next(numbers).to_bytes(size, "big")

        self.sessions = Sessions(self.access, self.clock, random_bytes, self.metrics)

    def read(self, config: AccessConfig) -> AccessFiles:
        return AccessFiles(tokens=dict(self.tokens), keys={})

    def signature(self, config: AccessConfig) -> Signature:
        return ((hash(tuple(self.tokens)), 0, 0),)

    def token(self, principal: str, *, expires_ms: int = 1 << 50) -> str:
        """Make a token, and have it known."""
        name, text, digest = made(hashlib.shake_128(principal.encode()).digest(40))
        self.tokens[name] = StoredToken(
            id=name, digest=digest, principal=principal, created_ms=0, expires_ms=expires_ms
        )
        self.look()
        return text

    def look(self) -> None:
        """Have the files read again, as the node does when they change."""

        def changed(before: Policy) -> None:
            for follower in self.access.followers:
                follower(before)

        self.access.look(lambda work, done: done(work()), changed)

    def sign_in(self, token: str) -> str:
        """Begin a session."""
        proven = self.access.proven(token)
        assert proven is not None
        return self.sessions.begin(proven)

    def whose(self, cookie: str, *, is_use: bool = True) -> str | None:
        """Whose a session is."""
        rights = self.sessions.find(cookie, is_use=is_use)
        return None if rights is None else rights.principal


def test_session_is_256_bits_of_which_the_node_keeps_a_hash() -> None:
    """What is in memory lets nobody in."""
    world = World()
    cookie = world.sign_in(world.token("anna"))
    assert len(bytes.fromhex(cookie)) == 32
    kept = list(world.sessions._sessions)
    assert kept == [hashlib.sha256(cookie.encode()).digest()]
    assert world.whose(cookie) == "anna"
    assert world.whose(kept[0].hex()) is None
    for other in ("", cookie[:-1], cookie.upper() + "x", "é", "\udcff"):
        assert world.whose(other) is None


def test_session_ends_when_nobody_uses_it() -> None:
    """What a page asks by itself is no use; the time goes on while the machine sleeps."""
    world = World()
    cookie = world.sign_in(world.token("anna"))
    world.clock.advance(IDLE_SECONDS - 1)
    assert world.whose(cookie) == "anna"
    world.clock.advance(IDLE_SECONDS - 1)
    assert world.whose(cookie, is_use=False) == "anna"
    world.clock.suspend(1)
    assert world.whose(cookie) is None
    assert world.whose(cookie) is None
    assert len(world.sessions) == world.metrics.value(OPEN) == 0


def test_session_ends_after_half_a_day_in_any_case() -> None:
    """However busy it is."""
    world = World()
    cookie = world.sign_in(world.token("anna"))
    for _ in range(int(SECONDS_MAX // 600) - 1):
        world.clock.advance(600)
        assert world.whose(cookie) == "anna"
    world.clock.advance(600)
    assert world.whose(cookie) is None


def test_session_ends_with_its_token() -> None:
    """When that expires, and when it is taken out of its file; others go on, by the rules that hold then."""
    world = World()
    short = world.sign_in(world.token("anna", expires_ms=START_MS + 60_000))
    gone, stays = world.sign_in(world.token("bert")), world.sign_in(world.token("cleo"))
    world.clock.advance(59.999)
    assert world.whose(short) == "anna"
    world.clock.advance(0.001)
    assert world.whose(short) is None
    world.tokens = {name: each for name, each in world.tokens.items() if each.principal != "bert"}
    world.look()
    assert (world.whose(gone), world.whose(stays)) == (None, "cleo")
    before = world.access.policy
    world.access.policy = world.access.prepared(AccessConfig(tokens="tokens.json", rules=[]))
    world.sessions.review(before)
    rights = world.sessions.find(stays, is_use=True)
    assert rights is not None
    assert not rights.may(Permission.VIEW, "orders")


def test_session_ends_when_its_owner_signs_out() -> None:
    """And no other with it."""
    world = World()
    token = world.token("anna")
    one, other = world.sign_in(token), world.sign_in(token)
    ended = world.sessions.end(one)
    assert ended is not None
    assert ended.principal == "anna"
    assert world.sessions.end(one) is None
    assert (world.whose(one), world.whose(other)) == (None, "anna")


def test_sessions_of_a_principal_and_of_all_are_bounded() -> None:
    """Who signs in again and again ends his own; where all places are taken, who was idle longest goes."""
    world = World()
    first = world.sign_in(world.token("first"))
    world.clock.advance(1)
    token = world.token("anna")
    own = [world.sign_in(token) for _ in range(PRINCIPAL_MAX + 3)]
    assert [world.whose(each) for each in own[:3]] == [None] * 3
    assert world.whose(own[3]) == "anna"
    assert world.whose(first) == "first"
    others = [world.token(f"p{number}") for number in range(SESSIONS_MAX // PRINCIPAL_MAX)]
    for number in range(SESSIONS_MAX - len(world.sessions)):
        world.sign_in(others[number // PRINCIPAL_MAX])
    assert len(world.sessions) == SESSIONS_MAX
    assert world.whose(first) == "first"
    world.sign_in(world.token("last"))
    assert len(world.sessions) == world.metrics.value(OPEN) == SESSIONS_MAX
    assert (world.whose(own[4]), world.whose(first)) == (None, "first")
