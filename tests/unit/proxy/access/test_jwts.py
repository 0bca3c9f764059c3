"""JSON Web Tokens: one way in, and the many ways that are none."""

from __future__ import annotations

import base64
import json
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from conf.sections.access import AccessConfig, JwtKey
from conf.sections.access_files import AccessUnreadable
from proxy.access.jwts import TOKEN_BYTES_MAX, Jwts

EC, OTHER_EC = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
RSA = rsa.generate_private_key(65537, 2048)
ED = ed25519.Ed25519PrivateKey.generate()
NOW_MS = 1_700_000_000_000
CLAIMS = {"iss": "issuer", "aud": "pyddmq", "sub": "alice", "exp": 1_700_000_600}


def pem(key: Any) -> bytes:
    """Return the public key."""
    found: bytes = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return found


def config(*keys: tuple[str, list[Any]], **fields: Any) -> AccessConfig:
    """Return keys of these names and algorithms."""
    made = [
        JwtKey(name=name, file=f"{name}.pem", algorithms=algorithms, issuer="issuer", audience="pyddmq", **fields)
        for name, algorithms in keys
    ]
    return AccessConfig(jwt=made, rules=[])


ONE = Jwts(config(("main", ["ES256"])), {"main": pem(EC)})


def signed(key: Any = EC, algorithm: str = "ES256", kid: str | None = "main", **claims: Any) -> str:
    """Sign claims; those that are None are left out."""
    given = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    return jwt.encode(given, key, algorithm=algorithm, headers={} if kid is None else {"kid": kid})


def test_token_of_a_listed_key_says_who_it_is() -> None:
    """With or without `kid` where there is one key; the clock may differ by a minute."""
    assert ONE.find(signed(), NOW_MS) == ("alice", 1_700_000_660_000, "main")
    assert ONE.find(signed(kid=None), NOW_MS) is not None
    assert ONE.find(signed(aud=["other", "pyddmq"]), NOW_MS) is not None
    assert ONE.find(signed(), NOW_MS + 659_000) is not None
    assert ONE.find(signed(), NOW_MS + 660_000) is None
    assert ONE.find(signed(nbf=1_700_000_059), NOW_MS) is not None
    assert ONE.find(signed(nbf=1_700_000_061), NOW_MS) is None


def test_prefix_keeps_subjects_apart_from_other_principals() -> None:
    """Whoever signs names only principals of the prefix."""
    jwts = Jwts(config(("main", ["ES256"]), prefix="sso:"), {"main": pem(EC)})
    found = jwts.find(signed(), NOW_MS)
    assert found is not None
    assert found.principal == "sso:alice"


@pytest.mark.parametrize(
    "claims",
    [
        *({name: None} for name in CLAIMS),
        {"iss": "other"}, {"aud": "other"}, {"aud": []}, {"sub": "anonymous"}, {"sub": ""}, {"sub": "a b"},
        {"sub": "x" * 129}, {"sub": "a\x01"}, {"exp": 1_600_000_000}, {"exp": "soon"}, {"exp": 1e300}, {"nbf": "now"},
    ],
)  # fmt: skip
def test_claims_are_all_required_and_all_compared(claims: dict[str, Any]) -> None:
    """exp, iss, aud and sub; a subject that is not a valid principal is nobody."""
    token = jwt.api_jws.encode(
        json.dumps({k: v for k, v in {**CLAIMS, **claims}.items() if v is not None}).encode(), EC, algorithm="ES256"
    )
    assert ONE.find(token, NOW_MS) is None


def part(values: object) -> str:
    """Encode a part of a token."""
    return base64.urlsafe_b64encode(json.dumps(values).encode()).rstrip(b"=").decode()


def test_token_has_no_say_in_its_algorithm() -> None:
    """`none`, a secret made of the public key, another algorithm of the same key, another key."""
    header, payload, signature = signed().split(".")
    assert ONE.find(f"{part({'alg': 'none', 'kid': 'main'})}.{payload}.", NOW_MS) is None
    assert ONE.find(f"{part({'alg': 'none'})}.{payload}.{signature}", NOW_MS) is None
    import hashlib
    import hmac

    hs = part({"alg": "HS256", "kid": "main"})
    mac = hmac.new(pem(EC), f"{hs}.{payload}".encode(), hashlib.sha256).digest()
    assert ONE.find(f"{hs}.{payload}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}", NOW_MS) is None
    assert ONE.find(signed(OTHER_EC), NOW_MS) is None
    assert ONE.find(f"{header}.{part({**CLAIMS, 'sub': 'mallory'})}.{signature}", NOW_MS) is None
    rsa_only = Jwts(config(("main", ["PS256"])), {"main": pem(RSA)})
    assert rsa_only.find(signed(RSA, "RS256"), NOW_MS) is None
    assert rsa_only.find(signed(RSA, "PS256"), NOW_MS) is not None


def test_key_is_chosen_by_its_name_and_by_nothing_that_the_token_brings() -> None:
    """A key in the header, or where one might be fetched, is not looked at; an unknown name is no key."""
    two = Jwts(config(("a", ["ES256"]), ("b", ["EdDSA"])), {"a": pem(EC), "b": pem(ED)})
    assert two.find(signed(ED, "EdDSA", kid="b"), NOW_MS) is not None
    assert two.find(signed(kid="b"), NOW_MS) is None
    assert two.find(signed(kid=None), NOW_MS) is None
    assert two.find(signed(kid="c"), NOW_MS) is None
    jwk = json.loads(jwt.get_algorithm_by_name("ES256").to_jwk(OTHER_EC.public_key()))
    headers = {"kid": "a", "jwk": jwk, "jku": "http://127.0.0.1:9/", "x5u": "http://127.0.0.1:9/"}
    assert two.find(jwt.encode(CLAIMS, OTHER_EC, algorithm="ES256", headers=headers), NOW_MS) is None


@pytest.mark.parametrize("text", ["", ".", "..", "a.b.c", "é.é.é", "\x00", "eyJ" * 5, "." * 8000, part({}) * 3])
def test_junk_is_a_denial_and_no_exception(text: str) -> None:
    """Whatever PyJWT or those below it raise."""
    assert ONE.find(text, NOW_MS) is None


def test_long_token_is_not_even_parsed() -> None:
    """8 KiB at most."""
    token = signed(pad="x" * TOKEN_BYTES_MAX)
    assert len(token) > TOKEN_BYTES_MAX
    assert ONE.find(token, NOW_MS) is None
    assert Jwts(AccessConfig(rules=[]), {}).find(signed(), NOW_MS) is None


def test_keys_are_public_ones_for_their_algorithms() -> None:
    """What cannot check is told at the start, with its place; a private key is not kept by a node."""
    private = EC.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for content, algorithms, said in (
        (private, ["ES256"], "private key"),
        (b"junk", ["ES256"], "not a public key in PEM"),
        (pem(EC), ["RS256"], "cannot verify RS256"),
        (pem(RSA), ["RS256", "ES256"], "cannot verify ES256"),
    ):
        with pytest.raises(AccessUnreadable, match=said) as caught:
            Jwts(config(("main", algorithms)), {"main": content})
        assert caught.value.path[:3] == ("access", "jwt", 0)


def test_key_that_changes_is_another_one() -> None:
    """Connections by it end when its file, issuer or algorithms change."""
    same = Jwts(config(("main", ["ES256"])), {"main": pem(EC)})
    assert same.knows("main", ONE)
    assert not Jwts(config(("main", ["ES256"])), {"main": pem(OTHER_EC)}).knows("main", ONE)
    assert not Jwts(config(("main", ["ES256"]), prefix="x:"), {"main": pem(EC)}).knows("main", ONE)
    assert not Jwts(AccessConfig(rules=[]), {}).knows("main", ONE)
