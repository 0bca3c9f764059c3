"""The `access` section: who is who, and who may do what (docs/security.md)."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, model_validator

from conf.base import Model, Reload, setting

_LIVE = Reload.LIVE

PRINCIPAL_CHARS_MAX = 128
ANONYMOUS = "anonymous"
"""A client without an identity. No pattern matches it; a rule has to name it."""

_PRINCIPAL = re.compile(r"[A-Za-z0-9_.@:/+=-]{1,128}\Z")
_PRINCIPAL_PATTERN = re.compile(r"[A-Za-z0-9_.@:/+=*-]{1,128}\Z")
_RESOURCE_PATTERN = re.compile(r"[!-~]{1,300}\Z")
_PREFIX = re.compile(r"[A-Za-z0-9_.@:/+=-]{0,64}\Z")

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
"""Asymmetric ones alone: with the others any party that checks tokens could make them."""


def is_principal(name: str) -> bool:
    """Whether a principal may have this name; `anonymous` is reserved."""
    return bool(_PRINCIPAL.match(name)) and name != ANONYMOUS


def _check_principal(name: str) -> str:
    if name == ANONYMOUS:
        raise ValueError(f"{ANONYMOUS} is reserved for clients without a principal; use another name")
    if not _PRINCIPAL.match(name):
        raise ValueError(
            f"{name!r} is not a valid principal; use 1 to {PRINCIPAL_CHARS_MAX} letters, digits, `_ . - @ : / + =`"
        )
    return name


def _check_principal_pattern(name: str) -> str:
    if not _PRINCIPAL_PATTERN.match(name):
        raise ValueError(
            f"{name!r} is not a valid principal pattern; use letters, digits, `_ . - @ : / + =`, and `*` for "
            "any characters"
        )
    return name


def _check_resource_pattern(name: str) -> str:
    if not _RESOURCE_PATTERN.match(name):
        raise ValueError(f"{name!r} is not a valid pattern; use a name, with `*` for any characters")
    return name


def check_network(text: str) -> str:
    """Return a network as it is written. Raises ValueError: a sentence that says what would be right."""
    try:
        network = ipaddress.ip_network(text)
    except ValueError:
        try:
            right = f"; write {ipaddress.ip_network(text, strict=False)}"
        except ValueError:
            right = "; write for example 10.20.0.0/16 or fd00::/8"
        raise ValueError(f"{text!r} is not a valid network{right}") from None
    if isinstance(network, ipaddress.IPv6Network) and network.network_address.ipv4_mapped is not None:
        raise ValueError(f"{text!r} is IPv4 within IPv6, which is treated as IPv4; write the IPv4 network")
    return text


def _check_prefix(text: str) -> str:
    if not _PREFIX.match(text):
        raise ValueError(
            f"{text!r} is not a valid prefix of a principal; use up to 64 letters, digits, `_ . - @ : / + =`"
        )
    return text


def _check_certificate_name(text: str) -> str:
    if not text.startswith(("DNS:", "URI:", "email:")):
        raise ValueError(f"{text!r} is not a valid alternative name; write DNS:..., URI:... or email:...")
    return text


Principal = Annotated[str, AfterValidator(_check_principal)]
PrincipalPattern = Annotated[str, AfterValidator(_check_principal_pattern)]
ResourcePattern = Annotated[str, AfterValidator(_check_resource_pattern)]

RESOURCES_MAX = 10_000
"""Patterns of one list."""


class NetworkRule(Model):
    """Whom connections from a network are of."""

    cidr: Annotated[str, AfterValidator(check_network)] = setting(
        ...,
        "A network, such as `10.20.0.0/16` or `fd00::/8`. The first entry that contains an address applies.",
        reload=_LIVE,
    )
    principal: Principal = setting(..., "The principal.", reload=_LIVE)


class CertificateRule(Model):
    """Whom client certificates are of."""

    subject: str | None = setting(
        None,
        "The whole subject in RFC 4514's form, such as `CN=audit,O=Example`; not a pattern.",
        reload=_LIVE,
        min_length=1,
    )
    name: Annotated[str, AfterValidator(_check_certificate_name)] | None = setting(
        None,
        "An alternative name of the subject, such as `DNS:*.shop.example`; `*` matches any characters.",
        reload=_LIVE,
    )
    principal: Principal = setting(..., "The principal.", reload=_LIVE)

    @model_validator(mode="after")
    def _check_one(self) -> CertificateRule:
        if (self.subject is None) == (self.name is None):
            raise ValueError("a certificate is matched by its subject or by one of its names; use one of the two")
        return self


class JwtKey(Model):
    """A key by which tokens are signed elsewhere."""

    name: str = setting(..., "Key id of the tokens (`kid`).", reload=_LIVE, min_length=1, max_length=200)
    file: str = setting(..., "File with the public key in PEM.", reload=_LIVE, min_length=1)
    algorithms: list[Algorithm] = setting(
        ..., "Allowed algorithms; the token cannot choose another.", reload=_LIVE, min_length=1
    )
    issuer: str = setting(..., "Required value of `iss`.", reload=_LIVE, min_length=1)
    audience: str = setting(..., "Required value of `aud`, or one of its values.", reload=_LIVE, min_length=1)
    prefix: Annotated[str, AfterValidator(_check_prefix)] = setting(
        "", "Prefix of the principal, before `sub`. Without it the issuer can name any principal.", reload=_LIVE
    )


class AccessRule(Model):
    """Rights: each principal has each of them."""

    principals: list[PrincipalPattern] = setting(
        ..., "The principals; `*` matches any characters. No pattern matches `anonymous`.", reload=_LIVE, min_length=1
    )
    produce: list[ResourcePattern] = setting([], "Topics.", reload=_LIVE, max_length=RESOURCES_MAX)
    consume: list[ResourcePattern] = setting(
        [], "Groups, with their retry and dead-letter topics.", reload=_LIVE, max_length=RESOURCES_MAX
    )
    transact: list[ResourcePattern] = setting([], "Producer groups.", reload=_LIVE, max_length=RESOURCES_MAX)
    view: list[ResourcePattern] = setting([], "Topics and groups.", reload=_LIVE, max_length=RESOURCES_MAX)
    operate: list[ResourcePattern] = setting([], "Topics and groups.", reload=_LIVE, max_length=RESOURCES_MAX)
    read_bodies: list[ResourcePattern] = setting([], "Topics and groups.", reload=_LIVE, max_length=RESOURCES_MAX)
    administer: bool = setting(False, "The node itself.", reload=_LIVE)

    @model_validator(mode="after")
    def _check_some(self) -> AccessRule:
        given = (self.produce, self.consume, self.transact, self.view, self.operate, self.read_bodies)
        if not any(given) and not self.administer:
            raise ValueError("allows nothing; list topics under `produce`, groups under `consume`, or remove it")
        return self


class AccessConfig(Model):
    """The `access` section. While it is there, what no rule gives is denied."""

    tokens: str | None = setting(
        None,
        "File of `pyddmq access token`. It is read again when it changes.",
        reload=_LIVE,
        absent="no tokens",
        min_length=1,
    )
    jwt: list[JwtKey] = setting([], "Keys of JSON Web Tokens.", reload=_LIVE, max_length=100)
    certificates: list[CertificateRule] = setting(
        [], "Principals of client certificates.", reload=_LIVE, max_length=10_000
    )
    networks: list[NetworkRule] = setting([], "Principals of networks.", reload=_LIVE, max_length=10_000)
    rules: list[AccessRule] = setting(
        ..., "Permissions of principals; an empty list denies everything.", reload=_LIVE, max_length=10_000
    )

    @model_validator(mode="after")
    def _check_keys(self) -> AccessConfig:
        names = [key.name for key in self.jwt]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"the key {name!r} is listed twice under `jwt`; keep one")
        return self
