"""Targets `authenticate`, `tokens` and `jwt`: any bytes as the first call of a connection, a file, and a token.

Nobody becomes somebody by bytes that the node has not given out. A call is answered whole, and its connection ends or
is somebody's; a file is taken whole and says the same when it is written again, or is refused in a sentence.
"""

from __future__ import annotations

import functools
import random

import jwt as pyjwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from broker.runtime.bundle import Runtime
from broker.runtime.metrics import Metrics
from broker.runtime.rate_limited_log import RateLimitedLog
from conf.sections.access import AccessConfig, AccessRule, JwtKey
from conf.sections.access_files import AccessFiles, AccessUnreadable, Signature, StoredToken, text_of, tokens_of
from proxy.access.access import Access
from proxy.access.jwts import Jwts
from proxy.access.tokens import find, made
from proxy.port.accepting import ServerLimits
from proxy.port.connection import Connection
from proxy.port.server import Commons, ThriftServer
from proxy.services.access.denials import Denials
from proxy.services.access.sign_in import SignIn
from proxy.wire.call import BINARY, COMPACT
from pyddmq.testing import ManualClock, ManualScheduler, SimDisk
from tests.fakes.codec import decode_reply, encode_call
from tests.fuzz.frames import Peer

_KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
_PEM = _KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
_CLAIMS = {"iss": "issuer", "aud": "pyddmq", "sub": "alice", "exp": 1 << 40}
_SIGNED = pyjwt.encode(_CLAIMS, _KEY, algorithm="EdDSA", headers={"kid": "main"})
_ID, _TEXT, _DIGEST = made(bytes(range(40)))
_STORED = StoredToken(id=_ID, digest=_DIGEST, principal="shop", created_ms=0, expires_ms=1 << 50)
_CONFIG = AccessConfig(
    jwt=[JwtKey(name="main", file="f", algorithms=["EdDSA"], issuer="issuer", audience="pyddmq", prefix="sso:")],
    rules=[AccessRule(principals=["*"], produce=["*"])],
)
_KNOWN = {"shop", "sso:alice"}

SEEDS = {
    "authenticate": {
        "token": bytes((BINARY & 1,)) + encode_call(BINARY, "authenticate", 1, {"token": _TEXT}),
        "compact": b"\x01" + encode_call(COMPACT, "authenticate", 1, {"token": _TEXT}),
        "jwt": b"\x00" + encode_call(BINARY, "authenticate", 1, {"token": _SIGNED}),
        "wrong": b"\x00" + encode_call(BINARY, "authenticate", 1, {"token": _TEXT[:-1]}),
        "twice": b"\x00" + 2 * encode_call(COMPACT, "authenticate", 1, {"token": _TEXT}),
        "none": b"\x00" + encode_call(COMPACT, "authenticate", 1, {}),
    },
    "tokens": {
        "one": text_of({_ID: _STORED}).encode(),
        "empty": b'{"tokens": []}',
        "twice": b'{"tokens": [{"id": "x"}, {"id": "x"}]}',
        "deep": b'{"tokens": ' + b"[" * 200,
    },
    "jwt": {
        "right": _SIGNED.encode(),
        "none": pyjwt.encode(_CLAIMS, "", algorithm="none").encode(),
        "other": pyjwt.encode(_CLAIMS, "x" * 32, algorithm="HS256", headers={"kid": "main"}).encode(),
        "parts": b"eyJhbGciOiJFZERTQSJ9.e30.",
    },
}


class _Files:
    """What stands in no file."""

    def read(self, config: AccessConfig) -> AccessFiles:
        return AccessFiles(tokens={_ID: _STORED}, keys={"main": _PEM})

    def signature(self, config: AccessConfig) -> Signature:
        return ()


class _Loopback(Peer):
    """A client on the same machine."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        return ("127.0.0.1", 5000) if name == "peername" else default


@functools.cache
def _server() -> ThriftServer:
    clock, metrics, disk = ManualClock(), Metrics(), SimDisk()
    log = RateLimitedLog(clock)
    scheduler = ManualScheduler(clock)
    runtime = Runtime(
        clock=clock,
        disk=disk,
        random=random.Random(1),
        metrics=metrics,
        limited_log=log,
        scheduler=scheduler,
        alarms=scheduler,
        syncs=None,
    )
    access = Access(_CONFIG, clock=clock, limited_log=log, files=_Files())
    sign_in = SignIn(access, Denials(scheduler, metrics, log), metrics)
    commons = Commons(runtime=runtime, request_turn=lambda: None, access=access)
    return ThriftServer("producer", sign_in.handlers(), limits=ServerLimits(), commons=commons)


def authenticate(data: bytes) -> None:
    """Take these bytes, from the second on, as what a client sends first; the first says how it is cut."""
    server = _server()
    connection, peer = Connection(server), _Loopback(slow=False)
    peer.protocol = connection
    connection.connection_made(peer)
    middle = len(data) // 2 if data[:1] and data[0] & 1 else len(data)
    for piece in (data[1:middle], data[max(middle, 1) :]):
        if not connection.closed:
            connection.data_received(piece)
    server.flush()
    rights = connection.rights
    if rights is not None and rights.way in ("token", "jwt"):
        assert rights.principal in _KNOWN, rights.principal
        assert _TEXT.encode() in data or b"." in data, "nobody is somebody without what was given out"
    reply = bytes(peer.written)
    while len(reply) >= 4 and not reply.startswith(b"HTTP"):
        size = int.from_bytes(reply[:4], "big")
        decode_reply(reply[4 : 4 + size])
        reply = reply[4 + size :]
    connection.connection_lost(None)
    assert not server.connections


def tokens(data: bytes) -> None:
    """Take these bytes as a file of tokens, and as a token."""
    try:
        found = tokens_of(data, "tokens.json")
    except AccessUnreadable as error:
        found, said = {}, str(error)
    else:
        said = "tokens.json"
    assert "tokens.json" in said
    assert tokens_of(text_of(found).encode(), "tokens.json") == found
    text = data.decode("utf-8", "replace")
    assert (find(text, {_ID: _STORED}, 0) is not None) == (text == _TEXT)


_JWTS = Jwts(_CONFIG, {"main": _PEM})


def jwt(data: bytes) -> None:
    """Take these bytes as a JSON Web Token."""
    found = _JWTS.find(data.decode("utf-8", "surrogateescape"), 0)
    assert found is None or found.principal == "sso:alice"
