"""One HTTP client: what aiohttp may do for a push, and what it may not.

Redirects, cookies, proxies from the environment and compressed replies are off: each would let a receiver, or the
environment, decide where a message goes or how much memory a reply takes. aiohttp is imported when one is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from actions.http.reply import printable
from actions.http.wish import AddressRefused, HttpWish
from actions.outside import Outside

if TYPE_CHECKING:
    from yarl import URL

__all__ = ["AddressRefused", "Client", "PushFailed", "Reply"]


class PushFailed(Exception):
    """A push got no reply that counts; the text says from where, and what came instead.

    Attributes:
        counts: Whether it says that nobody is at work there, so that it counts against the URL.
    """

    def __init__(self, text: str, *, counts: bool = True) -> None:
        super().__init__(text)
        self.counts = counts


class Reply(NamedTuple):
    """A reply."""

    status: int
    body: bytes


class Client:
    """Sends requests over a pool of connections of its own; made in the loop's thread.

    Raises:
        OSError: The file of authorities cannot be used.
    """

    def __init__(self, outside: Outside, wish: HttpWish, reply_bytes_max: int) -> None:
        import aiohttp

        self._reply_bytes_max = reply_bytes_max
        self._errors = (aiohttp.ClientError, OSError, RuntimeError)
        self._timeout_of = aiohttp.ClientTimeout
        self._timeout = aiohttp.ClientTimeout(total=5.0)
        self._session = aiohttp.ClientSession(
            connector=outside.http(wish),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            timeout=self._timeout,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        )

    async def send(self, method: str, url: URL, headers: list[tuple[str, str]], body: bytes, ms: int) -> Reply:
        """Send one request and read its reply whole.

        Args:
            method: GET or POST.
            url: Where to.
            headers: All of the request's but those that frame it.
            body: Its body.
            ms: How long all of it may take.

        Raises:
            PushFailed: No connection, none in time, a reply that is none, or a larger one than allowed.
            AddressRefused: The connection's address is not allowed.
        """
        if self._timeout.total != ms / 1000:
            # Kept, for it is the same for all of a configuration.
            self._timeout = self._timeout_of(total=ms / 1000)
        try:
            async with self._session.request(
                method, url, data=body or None, headers=headers, allow_redirects=False, timeout=self._timeout
            ) as reply:
                if (reply.content_length or 0) > self._reply_bytes_max:
                    reply.close()
                    raise PushFailed(self._too_long())
                read = await reply.content.readany()
                while not reply.content.at_eof():
                    read += await reply.content.readany()
                    if len(read) > self._reply_bytes_max:
                        break
                if len(read) > self._reply_bytes_max:
                    reply.close()
                    raise PushFailed(self._too_long())
                return Reply(reply.status, read)
        except TimeoutError:
            raise PushFailed(f"no reply within {ms} ms") from None
        except self._errors as error:
            raise PushFailed(f"{type(error).__name__}: {printable(error)}") from None

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()

    def _too_long(self) -> str:
        return f"the reply has more than {self._reply_bytes_max} bytes (replyBytesMax)"
