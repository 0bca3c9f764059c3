"""URLs that came with a message, in the property `carrera_http_callback_url` (R53, W62): which may be pushed to (D43).

DDMQ lets the property replace the configured URLs, whatever it says. Here it has no effect unless the subscription's
`callback` names origins. A URL must be plain, of an origin of the list, and each of its addresses is looked at once
more where the socket is made (`edge`), because a name may resolve to anything, also to something else a moment later.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import urlsplit

from actions.http.addresses import Network, looks_numeric, refusal

PROPERTY = "carrera_http_callback_url"
SEPARATOR = "<>"
URLS_MAX = 8
"""URLs that one message may name."""
URL_CHARACTERS_MAX = 2048
_PORTS = {"http": 80, "https": 443}
_PLAIN_URL = re.compile(r"[!#-;=?-\[\]_a-z~]+\Z")
"""Printable ASCII without what no URL has: blanks, quotes, angle brackets, backslash, caret, backquote, braces, bar."""
_HOST = re.compile(
    r"(?:[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]*[A-Za-z0-9_])?)*\Z"
)
_ORIGIN = re.compile(r"(https?)://(\*|(?:\*\.)?[A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]+\])(?::(\d{1,5}|\*))?/?\Z")


class UrlRefused(ValueError):
    """A message's URL may not be pushed to; the text says why."""


class AllowedOrigin(NamedTuple):
    """One entry of the allow-list.

    Attributes:
        scheme: http or https.
        host: Lower case, an IPv6 address without brackets. `*` is any; `*.x` is every host below x, not x itself.
        port: The port; None for any.
    """

    scheme: str
    host: str
    port: int | None

    def matches(self, scheme: str, host: str, port: int) -> bool:
        """Whether a URL is of this origin."""
        if scheme != self.scheme or self.port not in (None, port):
            return False
        if self.host.startswith("*."):
            return host.endswith(self.host[1:]) and len(host) >= len(self.host)
        return self.host in ("*", host)


def parse_origin(text: str) -> AllowedOrigin:
    """Return an entry of the allow-list as it is meant.

    Raises:
        ValueError: It is none; the text says how one looks.
    """
    found = _ORIGIN.match(text)
    if found is None:
        wanted = "https://hooks.example.com, https://*.example.com or http://10.1.2.3:8080"
        raise ValueError(
            f"{text!r:.80} is not a valid origin; write scheme and host, and the port if it is not the "
            f"default: {wanted}"
        )
    scheme, host, port = found.groups()
    if port == "*":
        return AllowedOrigin(scheme, host.strip("[]").lower(), None)
    number = int(port) if port else _PORTS[scheme]
    if not 1 <= number <= 65_535:
        raise ValueError(f"{number} is not a valid port; use 1 to 65535")
    return AllowedOrigin(scheme, host.strip("[]").lower(), number)


def split(value: str) -> list[str]:
    """Return the URLs of the property, in its order.

    Raises:
        UrlRefused: It names none, or more than URLS_MAX.
    """
    urls = [url for url in value.split(SEPARATOR) if url]
    if not urls:
        raise UrlRefused(f"the property {PROPERTY} has no URL")
    if len(urls) > URLS_MAX:
        raise UrlRefused(f"the property {PROPERTY} has {len(urls)} URLs; the maximum is {URLS_MAX}")
    return urls


def check(url: str, origins: Sequence[AllowedOrigin], networks: Sequence[Network]) -> str:
    """Return a message's URL when it may be pushed to, as far as its text says; its host in lower case.

    Raises:
        UrlRefused: It may not.
    """
    if len(url) > URL_CHARACTERS_MAX:
        raise UrlRefused(f"it has {len(url)} characters; the maximum is {URL_CHARACTERS_MAX}")
    if not _PLAIN_URL.match(url):
        raise UrlRefused("it has a character that is not allowed in URLs")
    scheme, host, port = _parts(url)
    if not any(origin.matches(scheme, host, port) for origin in origins):
        raise UrlRefused(f"{scheme}://{host}:{port} is not one of the allowed origins")
    if ":" in host or looks_numeric(host):
        why = refusal(host, networks)
        if why is not None:
            raise UrlRefused(why)
    return url


def _parts(url: str) -> tuple[str, str, int]:
    try:
        parts = urlsplit(url)
        scheme, host, port = parts.scheme, parts.hostname, parts.port
    except ValueError as error:
        raise UrlRefused(f"it is not a valid URL ({error})") from None
    if scheme not in _PORTS:
        raise UrlRefused(f"its scheme is {scheme!r:.20}; only http and https are supported")
    if "@" in parts.netloc:
        raise UrlRefused("it has a user name")
    if parts.fragment or url.endswith("#"):
        raise UrlRefused("it has a fragment")
    if not host:
        raise UrlRefused("it has no host")
    bracketed = parts.netloc.startswith("[")
    if bracketed != (":" in host) or "%" in host or (not bracketed and not _HOST.match(host)):
        # A trailing dot, empty labels, percent signs, scopes: two readers may see two hosts.
        raise UrlRefused(f"{host!r:.60} is not a plain host name")
    if parts.netloc.endswith(":") or port == 0:
        raise UrlRefused("its port is missing")
    return scheme, host, port or _PORTS[scheme]
