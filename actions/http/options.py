"""Options of AsyncHttp, as the configuration writes them; the names are DDMQ's where DDMQ has the field."""

from __future__ import annotations

import ipaddress
import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from actions.http.addresses import Network
from actions.http.callback import AllowedOrigin, parse_origin
from conf.base import Model, Reload, setting
from conf.secrets import NAMES_OF_SECRETS, Secret, masked

_GENERATION = Reload.GENERATION
_URL = re.compile(r"[!#-;=?-\[\]_a-z~]+\Z")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}\Z")
_KEY_ID = re.compile(r"[A-Za-z0-9._-]{1,64}\Z")
FORBIDDEN_HEADERS = frozenset(
    (
        *("connection", "content-length", "content-type", "expect", "forwarded", "host", "keep-alive", "te", "trailer"),
        *("transfer-encoding", "upgrade", "via", "authorization", "cookie"),
    )
)
"""Headers that no message may set: they frame the request, or speak for the node."""
FORBIDDEN_PREFIXES = ("proxy-", "x-forwarded-", "pyddmq-", "sec-")


def is_header(name: str) -> bool:
    """Whether a text may be the name of an HTTP header (RFC 9110 5.6.2)."""
    return _HEADER.match(name) is not None


def _check_url(url: str) -> str:
    if not _URL.match(url):
        raise ValueError(f"{masked(url)!r:.80} has a character that is not allowed in URLs; write it with %XX")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"{masked(url)!r:.80} is not a valid URL ({error}); write http://host:port/path") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ValueError(
            f"{masked(url)!r:.80} is not a valid push URL; write http://host:port/path or https://host/path"
        )
    if "@" in parts.netloc:
        raise ValueError("a URL with a user shows its password in logs; write headers: {Authorization: {file: ...}}")
    if parts.fragment:
        raise ValueError(f"{url!r:.80} has a fragment, which is never sent; remove the part after #")
    return url


def _check_urls(urls: list[str]) -> list[str]:
    if len(set(urls)) != len(urls):
        raise ValueError("a URL is listed twice; keep one of the two")
    return urls


def _check_header_name(name: str) -> str:
    if not is_header(name):
        raise ValueError(f"{name!r:.60} is not a valid header name; write letters, digits and -")
    if name.lower() in FORBIDDEN_HEADERS - {"authorization", "cookie"} or name.lower().startswith("pyddmq-"):
        raise ValueError(f"{name} is set by the node itself; remove it")
    return name


def _check_header_value(value: str | Secret) -> str | Secret:
    if isinstance(value, str) and not is_header_value(value):
        raise ValueError("it is not a valid header value; write printable ASCII without blanks at its ends")
    return value


def _check_headers(headers: dict[str, str | Secret]) -> dict[str, str | Secret]:
    for name, value in headers.items():
        if isinstance(value, str) and NAMES_OF_SECRETS.search(name):
            raise ValueError(f"{name} is a secret and is not written here; write {{file: PATH}} or {{env: NAME}}")
    return headers


def is_header_value(value: str) -> bool:
    """Whether a text may be the value of a header: printable ASCII, no blanks around it."""
    return len(value) <= 8192 and value.isascii() and (value.isprintable() and value == value.strip())


def _check_message_header(pattern: str) -> str:
    name = pattern.removesuffix("*").lower()
    if not is_header(pattern) or pattern == "*":
        raise ValueError(f"{pattern!r:.60} is not a valid header name or prefix with *; write for example X-Shop-*")
    if name in FORBIDDEN_HEADERS or name.startswith(FORBIDDEN_PREFIXES):
        raise ValueError(f"{pattern} is a header that messages may not set; remove it")
    return pattern


def _parse_networks(texts: list[str]) -> list[str]:
    for text in texts:
        try:
            ipaddress.ip_network(text)
        except ValueError as error:
            raise ValueError(
                f"{text!r:.60} is not a valid block of addresses ({error}); write for example 10.1.0.0/16"
            ) from None
    return texts


def _check_origins(texts: list[str]) -> list[str]:
    for text in texts:
        parse_origin(text)
    return texts


def _check_key_id(text: str) -> str:
    if not _KEY_ID.match(text):
        raise ValueError(f"{text!r:.60} is not a valid key id; write 1 to 64 letters, digits, . _ -")
    return text


def _method(value: object) -> object:
    return value.upper() if isinstance(value, str) else value


class CallbackOptions(Model):
    """Which URLs of messages are pushed to in place of `urls`."""

    origins: Annotated[list[str], AfterValidator(_check_origins)] = setting(
        ...,
        "Origins that a message may use: `https://hooks.example.com`, `https://*.example.com`, with the "
        "port if it is not the scheme's default; `:*` allows any port.",
        reload=_GENERATION,
        min_length=1,
        max_length=256,
    )
    networks: Annotated[list[str], AfterValidator(_parse_networks)] = setting(
        [],
        "Address blocks that may be connected to although they are not public, such as `10.1.0.0/16`.",
        reload=_GENERATION,
        max_length=256,
    )

    @property
    def parsed_origins(self) -> list[AllowedOrigin]:
        """The origins, taken apart."""
        return [parse_origin(text) for text in self.origins]

    @property
    def parsed_networks(self) -> list[Network]:
        """The blocks, taken apart."""
        return [ipaddress.ip_network(text) for text in self.networks]


class SignatureOptions(Model):
    """How requests are signed: HMAC-SHA256 over time, key id, topic, query and body."""

    key_id: Annotated[str, AfterValidator(_check_key_id)] = setting(
        ..., "Name of the key, by which receivers select it; a new key needs a new name.", reload=_GENERATION
    )
    secret: Secret = setting(..., "The key: `{file: PATH}` or `{env: NAME}`.", reload=_GENERATION)


class BreakerOptions(Model):
    """When a URL is out, and for how long."""

    failures: int = setting(
        5, "Consecutive failures after which a URL is excluded; 0 means never.", reload=_GENERATION, ge=0, le=10_000
    )
    open_ms: int = setting(
        1_000,
        "Milliseconds until one request probes an excluded URL; doubled after each failed probe.",
        reload=_GENERATION,
        ge=10,
        le=3_600_000,
    )
    open_ms_max: int = setting(
        30_000, "Maximum time in milliseconds between probes.", reload=_GENERATION, ge=10, le=3_600_000
    )


class TlsOptions(Model):
    """How https servers are known. Certificates and host names are always checked."""

    ca_file: str | None = setting(
        None,
        "PEM file of the CAs to trust instead of the system's; read again when it has changed and a "
        "receiver's certificate is refused.",
        reload=_GENERATION,
        absent="the system's",
        min_length=1,
    )


class AsyncHttpOptions(Model):
    """Options of AsyncHttp."""

    urls: Annotated[
        list[Annotated[str, AfterValidator(_check_url), Field(max_length=2048)]], AfterValidator(_check_urls)
    ] = setting(
        ...,
        "Target URLs, http or https; the next one is used after each error (R53).",
        reload=_GENERATION,
        min_length=1,
        max_length=64,
    )
    http_method: Annotated[Literal["POST", "GET"], BeforeValidator(_method)] = setting(
        "POST", "`POST` or `GET`, in any case. With GET the form is sent in the query.", reload=_GENERATION
    )
    http_max_tps: float = setting(
        -1,
        "Requests per second, retries included; 0 or less means no limit except maxTps (R61).",
        reload=_GENERATION,
        le=1_000_000,
    )
    success: Literal["200", "2xx"] = setting(
        "2xx",
        "Success statuses, whose body is checked for an errno: every 2xx, or only 200, as in DDMQ.",
        reload=_GENERATION,
    )
    connections: int = setting(
        64, "Maximum concurrent requests per URL; others wait.", reload=_GENERATION, ge=1, le=4096
    )
    request_bytes_max: int = setting(
        16_777_216,
        "Maximum size of a request's body in bytes; a larger message is dead-lettered.",
        reload=_GENERATION,
        ge=1024,
    )
    reply_bytes_max: int = setting(
        65_536, "Maximum size of a reply's body in bytes; more is an error.", reload=_GENERATION, ge=16, le=16_777_216
    )
    headers: Annotated[
        dict[
            Annotated[str, AfterValidator(_check_header_name)],
            Annotated[str | Secret, AfterValidator(_check_header_value)],
        ],
        AfterValidator(_check_headers),
    ] = setting(
        {},
        "Headers of every request: a text, or `{file: PATH}` or `{env: NAME}` for a secret. Authorization, "
        "Cookie and headers named like a token, key or password must be secrets.",
        reload=_GENERATION,
        max_length=64,
    )
    message_headers: list[Annotated[str, AfterValidator(_check_message_header)]] = setting(
        [],
        "Headers that a message's property carrera_headers, a JSON object, may set: names, or prefixes with `*`.",
        reload=_GENERATION,
        max_length=64,
    )
    signature: SignatureOptions | None = setting(None, "Sign every request.", reload=_GENERATION, absent="unsigned")
    callback: CallbackOptions | None = setting(
        None,
        "Push to the URLs of a message's property carrera_http_callback_url if they match this list.",
        reload=_GENERATION,
        absent="the property has no effect",
    )
    breaker: BreakerOptions = setting(BreakerOptions(), "When to exclude a URL.", reload=_GENERATION)
    tls: TlsOptions = setting(TlsOptions(), "How https servers are verified.", reload=_GENERATION)
