"""authenticate: a connection says who it is, by its first call, over TLS or the loopback.

A failure ends the connection: no client continues under the principal of its network or certificate.
What was wrong is not said, but for what the client itself has done wrong with a token that may be right.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from broker.runtime.metrics import Metrics
from proxy.access.access import DENIED_WAY, SIGNED_IN, Access
from proxy.access.rights import Rights
from proxy.port.connection import Connection
from proxy.port.server import Handler
from proxy.services.access.denials import Denials
from proxy.wire.call import Call
from proxy.wire.errors import ArgumentsError
from proxy.wire.generic.calls import decode_arguments, encode_reply
from pyddmq.codes import PullCode

EVERYBODY = "anonymous"


class SignIn:
    """The handler of `authenticate` on both ports."""

    def __init__(self, access: Access | None, denials: Denials, metrics: Metrics) -> None:
        self._access = access
        self._denials = denials
        self._metrics = metrics

    def handlers(self) -> Mapping[str, Handler]:
        """Method name to handler."""
        return {"authenticate": self.authenticate}

    def authenticate(self, connection: Connection, call: Call) -> None:
        """Say who a connection is, by its token."""
        try:
            token = decode_arguments(call).get("token")
        except ArgumentsError:
            # As any other wrong one, and never with a piece of it.
            token = None
        access = self._access
        if access is None:
            connection.answer(encode_reply(call, {"success": {"name": EVERYBODY}}))
        elif not (connection.is_encrypted or _is_loopback(connection.host)):
            self._deny(connection, call, "a token is accepted only over TLS or from loopback addresses; connect by TLS")
        elif connection.requests != 1:
            self._deny(connection, call, "authenticate must be the first call of a connection; open a new one")
        elif token is None or (proven := access.proven(token)) is None:
            self._deny(connection, call, "the token is missing, wrong or expired; use a new one")
        else:
            self._metrics.counter(SIGNED_IN, proven.way).add()
            connection.rights = access.rights_by(proven)
            success = {"name": proven.principal, "expiresMs": proven.expires_ms}
            connection.answer(encode_reply(call, {"success": success}))

    def _deny(self, connection: Connection, call: Call, text: str) -> None:
        """Answer, and end the connection; what it sent after this call is denied."""
        self._denials.note(connection, "authenticate", "", reason="proof")
        rights = connection.rights
        connection.rights = Rights("" if rights is None else rights.principal, None, way=DENIED_WAY)
        connection.answer(encode_reply(call, {"error": {"code": int(PullCode.DENIED), "message": text}}))
        connection.part()


def _is_loopback(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host.partition("%")[0].strip("[]"))
    except ValueError:
        return False
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return (mapped or address).is_loopback
