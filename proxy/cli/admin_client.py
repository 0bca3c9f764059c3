"""Reads the admin port's JSON (docs/admin.md)."""

from __future__ import annotations

import http.client
import json
from typing import Any

from proxy.cli.codes import ExitCode
from proxy.cli.errors import CliError
from proxy.client import ClientMisuse, parse_address

TIMEOUT_SECONDS = 10.0


def get(address: str, path: str) -> dict[str, Any]:
    """Fetch one page of the JSON API.

    Args:
        address: `host:port` of the admin port.
        path: Path and query.

    Raises:
        CliError: Nobody answers there, something else does, or the node refuses.
    """
    try:
        host, port = parse_address(address)
    except ClientMisuse as error:
        raise CliError(str(error), ExitCode.USAGE) from error
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    try:
        connection.request("GET", path, headers={"Accept": "application/json"})
        answer = connection.getresponse()
        value = json.loads(answer.read())
    except (ConnectionError, TimeoutError, OSError) as error:
        reason = "no answer in time" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
        text = (
            f"cannot connect to the admin port at {address}: {reason}. Is the node running? `pyddmq serve` starts one"
        )
        raise CliError(f"{text}; --admin host:port names another.", ExitCode.CANNOT_CONNECT) from error
    except (http.client.HTTPException, ValueError) as error:
        text = f"what answers at {address} is no pyddmq admin port; name it with --admin host:port."
        raise CliError(text, ExitCode.CANNOT_CONNECT) from error
    finally:
        connection.close()
    if not isinstance(value, dict) or (answer.status != http.client.OK and "error" not in value):
        text = f"what answers at {address} is no pyddmq admin port; name it with --admin host:port."
        raise CliError(text, ExitCode.CANNOT_CONNECT)
    if answer.status != http.client.OK:
        raise CliError(f"the node refused: {value['error'].get('message', answer.reason)}", ExitCode.REFUSED)
    return value
