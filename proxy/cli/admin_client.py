"""Asks the admin port: reads its JSON, and sets off changes (docs/admin.md).

Each request brings a token where there is one, from a file or the environment and never from the command line, which
every user of the machine may read. The first of these counts: PYDDMQ_ADMIN_TOKEN, the file of PYDDMQ_ADMIN_TOKEN_FILE,
that of `--token-file` or PYDDMQ_TOKEN_FILE, PYDDMQ_TOKEN. It goes over TLS or the loopback alone.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from urllib.parse import urlencode

import msgspec

from proxy.cli.errors import CliError
from proxy.cli.tls_options import tls_for
from proxy.cli.token_option import chosen_token_file
from proxy.operate.views.errors import ErrorAnswer
from proxy.process.exit_codes import ExitCode
from pyddmq import ClientMisuse, Tls, parse_address
from pyddmq.client.tls import failure
from pyddmq.client.tokens import is_loopback, token_of

TIMEOUT_SECONDS = 10.0
CHANGE_TIMEOUT_SECONDS = 60.0
"""A change is answered when it is durable, and one at a time."""

T = TypeVar("T")


def get(
    address: str,
    path: str,
    shape: type[T],
    *,
    parameters: Mapping[str, object] = MappingProxyType({}),
    timeout_seconds: float = TIMEOUT_SECONDS,
) -> T:
    """Fetch one page of the JSON API.

    Args:
        address: `host:port` of the admin port, `https://host:port` by TLS.
        path: Path of the page.
        shape: What it answers with.
        parameters: Parameters by name; one that is None is left out.
        timeout_seconds: Longest wait for the answer.

    Raises:
        CliError: Nobody answers there, something else does, or the node refuses.
    """
    query = urlencode(given(parameters))
    return _request("GET", address, f"{path}?{query}" if query else path, None, shape, timeout_seconds)


def given(parameters: Mapping[str, object]) -> dict[str, str]:
    """Return parameters as a query has them, without those that are None."""
    return {name: str(value) for name, value in parameters.items() if value is not None}


def post(
    address: str,
    path: str,
    document: Mapping[str, Any] | None,
    shape: type[T],
    *,
    timeout_seconds: float = CHANGE_TIMEOUT_SECONDS,
    also: Collection[int] = (),
) -> T:
    """Set off a change and return its result; it is durable then.

    Args:
        address: `host:port` of the admin port.
        path: Path of the change.
        document: Its JSON body.
        shape: What it answers with.
        timeout_seconds: Longest wait for the answer.
        also: Statuses beside 200 whose answer is the result.

    Raises:
        CliError: Nobody answers there, something else does, or the node refuses; it has changed nothing then.
    """
    return _request("POST", address, path, document or {}, shape, timeout_seconds, also)


def delete(address: str, path: str, document: Mapping[str, Any], shape: type[T]) -> T:
    """Delete something; as `post`."""
    return _request("DELETE", address, path, document, shape, CHANGE_TIMEOUT_SECONDS)


def _request(  # noqa: PLR0917 - of a request, in their order
    method: str,
    address: str,
    path: str,
    document: Mapping[str, Any] | None,
    shape: type[T],
    timeout_seconds: float,
    also: Collection[int] = (),
) -> T:
    tls = tls_for(address)
    try:
        host, port = parse_address(address.removeprefix("https://").removeprefix("http://").removesuffix("/"))
    except ClientMisuse as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    headers = {"Accept": "application/json"}
    body = None
    if document is not None:
        headers["Content-Type"] = "application/json"
        body = json.dumps(document, ensure_ascii=False).encode()
    token = _token()
    is_kept_back = False
    connection = (
        http.client.HTTPConnection(host, port, timeout=timeout_seconds)
        if tls is None
        else _Encrypted(host, port, timeout_seconds, tls)
    )
    try:
        if token is not None:
            connection.connect()
            is_kept_back = tls is None and not is_loopback(connection.sock.getpeername())
            if not is_kept_back:
                headers["Authorization"] = f"Bearer {token}"
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        raw = answer.read()
    except (ConnectionError, TimeoutError, OSError) as error:
        by_tls = failure(address, error) if isinstance(error, OSError) else None
        if by_tls is not None:
            raise CliError(str(by_tls), ExitCode.CANNOT_CONNECT) from error
        reason = (
            "no answer within the time limit"
            if isinstance(error, TimeoutError)
            else (error.strerror or str(error)).lower()
        )
        text = (
            f"cannot connect to the admin port at {address}: {reason}. Is the node running? `pyddmq serve` starts one"
        )
        raise CliError(f"{text}; --admin host:port selects another node.", ExitCode.CANNOT_CONNECT) from error
    except http.client.HTTPException as error:
        raise _another(address) from error
    finally:
        connection.close()
    try:
        if answer.status != http.client.OK:
            if raw.startswith(b"This port speaks TLS"):
                text = f"the admin port at {address} speaks TLS; pass --admin https://{address}"
                raise CliError(text, ExitCode.CANNOT_CONNECT)
            with contextlib.suppress(msgspec.ValidationError):
                message = msgspec.json.decode(raw, type=ErrorAnswer).error.message
                # A name or an id that nothing has is 404, of whatever path.
                code = ExitCode.NOT_FOUND if answer.status == http.client.NOT_FOUND else ExitCode.REFUSED
                if is_kept_back and answer.status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
                    message += " (The token was not sent: it is sent only over TLS or to loopback addresses.)"
                raise CliError(f"the node refused: {message}", code)
            if answer.status not in also:
                raise _another(address)
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _another(address) from error


class _Encrypted(http.client.HTTPConnection):
    """HTTPS, with a name of its own for the certificate."""

    def __init__(self, host: str, port: int, timeout_seconds: float, tls: Tls) -> None:
        super().__init__(host, port, timeout=timeout_seconds)
        self._context = tls.context()
        self._name = tls.server_name or host

    def connect(self) -> None:
        super().connect()
        self.sock = self._context.wrap_socket(self.sock, server_hostname=self._name)


def _another(address: str) -> CliError:
    text = f"the server at {address} is not a pyddmq admin port of this version; pass another with --admin host:port."
    return CliError(text, ExitCode.CANNOT_CONNECT)


def _token() -> str | None:
    """Return the token to bring; None for none. Raises CliError: its file cannot be read, or holds no token."""
    own, file = os.environ.get("PYDDMQ_ADMIN_TOKEN", "").strip(), os.environ.get("PYDDMQ_ADMIN_TOKEN_FILE", "")
    try:
        token = own or (token_of(Path(file)) if file else token_of(chosen_token_file()))
    except ClientMisuse as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    if token is not None and not (token.isascii() and token.isprintable()):
        text = "the token is not one line of ASCII; its file, or variable, must hold one token and nothing else"
        raise CliError(text, ExitCode.USAGE)
    return token
