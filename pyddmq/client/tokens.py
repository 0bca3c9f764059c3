"""A client's token: where it is taken from, and where it may go."""

from __future__ import annotations

import ipaddress
import os
from typing import Any

from pyddmq import idl
from pyddmq.client.codec import Codec, WireProtocol
from pyddmq.client.errors import AccessRefused, CallRejected, CannotConnect, ClientMisuse, Unreachable

Token = str | os.PathLike[str]
"""A token, or the path of a file that holds it."""

METHOD = "authenticate"
ENVIRONMENT, FILE_ENVIRONMENT = "PYDDMQ_TOKEN", "PYDDMQ_TOKEN_FILE"
_FILE_BYTES_MAX = 64 * 1024


def token_of(given: Token | None) -> str | None:
    """Return the token to bring; None for none. A file is read each time, so that it may change.

    Args:
        given: None: what the environment says, PYDDMQ_TOKEN_FILE before PYDDMQ_TOKEN. An empty text: none.

    Raises:
        ClientMisuse: Its file cannot be read.
    """
    if isinstance(given, str):
        return given.strip() or None
    path = os.environ.get(FILE_ENVIRONMENT, "") if given is None else os.fspath(given)
    if given is None and not path:
        return os.environ.get(ENVIRONMENT, "").strip() or None
    try:
        with open(path, encoding="utf-8") as opened:
            text = opened.read(_FILE_BYTES_MAX).strip()
    except UnicodeDecodeError:
        raise ClientMisuse(f"the file of the token, {path}, is not UTF-8") from None
    except OSError as error:
        raise ClientMisuse(f"the file of the token, {path}, cannot be read ({error.strerror or error})") from error
    if not text:
        raise ClientMisuse(f"the file of the token, {path}, is empty")
    return text


class SigningIn:
    """The first call of a connection, where there is a token."""

    def __init__(self, address: str, token: Token | None, protocol: WireProtocol) -> None:
        self._address = address
        self._token = token
        self._protocol = protocol

    def codec(self) -> Codec:
        """Return what encodes the call; it is the same on both ports."""
        service: Any = idl.load("consumer").AuthenticatedConsumerService
        return Codec(self._address, service, self._protocol)

    def token(self, peer: object, *, is_encrypted: bool) -> str | None:
        """Return what to bring over a connection; None for nothing.

        Args:
            peer: Address of the other end, as `socket.getpeername` has it.
            is_encrypted: Whether it is by TLS.

        Raises:
            ClientMisuse: It would go over a network as it is.
        """
        token = token_of(self._token)
        if token is not None and not (is_encrypted or is_loopback(peer)):
            raise ClientMisuse(
                f"a token is sent only over TLS or to loopback addresses; write tls://... for {self._address}"
            )
        return token

    def refused(self, error: Exception) -> Exception:
        """Return what is raised for the answer to the call."""
        if isinstance(error, CallRejected):
            if error.code == 1:
                return AccessRefused(error.code, f"{self._address} does not support tokens; do not send one")
            return AccessRefused(error.code, error.text)
        if isinstance(error, Unreachable):
            # Nothing of the call for which it was opened has left.
            return CannotConnect(self._address, f"it did not answer {METHOD}")
        if type(error).__name__ == "AccessDenied":
            return AccessRefused(getattr(error, "code", 0), getattr(error, "message", None) or "it rejects the token")
        return error


def is_loopback(peer: object) -> bool:
    """Whether the other end, as `socket.getpeername` has it, is this machine."""
    if not isinstance(peer, tuple) or not peer:
        # A Unix socket goes over no network.
        return True
    try:
        address = ipaddress.ip_address(str(peer[0]).partition("%")[0])
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
