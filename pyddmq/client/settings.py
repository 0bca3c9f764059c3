"""What producers of both kinds are made with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

from pyddmq import idl
from pyddmq.client.checks import ProducerGroupChecks
from pyddmq.client.codec import WireProtocol
from pyddmq.client.errors import ClientMisuse
from pyddmq.client.sends import IN_FLIGHT_MAX, Resending
from pyddmq.client.tls import Tls
from pyddmq.client.tokens import Token

L = TypeVar("L")


class Sending:
    """A producer's settings.

    Attributes:
        address: The node's `host:port`.
    """

    _service = "ProducerService"
    _connection_class: ClassVar[Any]
    """What it is connected by."""

    def __init__(
        self,
        address: str,
        *,
        timeout_ms: int = 5000,
        resends: int = 1,
        resend_pause_ms: int = 50,
        protocol: WireProtocol = "binary",
        tls: Tls | None = None,
        token: Token | None = None,
        on_resend: Callable[[Exception], None] | None = None,
        deduplicate: bool = True,
        patience_ms: int = 0,
        in_flight_max: int = IN_FLIGHT_MAX,
    ) -> None:
        """Set up; the connection is opened by the first send or `connect`.

        Args:
            address: `host:port` or `tls://host:port` of the node's producer port.
            timeout_ms: How long the node may take for a send; the client waits one second more for its answer.
            resends: How often a failed send is tried again; 0 for never.
            resend_pause_ms: Wait before each resend.
            protocol: "binary" or "compact".
            tls: For an address by TLS: the CA, and what the client shows.
            token: Who this is, for nodes with rules: a token, or the path of its file. Left out: PYDDMQ_TOKEN_FILE or
                PYDDMQ_TOKEN of the environment; "" for none.
            on_resend: Called with the failure before each resend.
            deduplicate: Number messages, so that a node stores none twice (docs/deduplication.md). Without numbers, and
                at a node that does not know them, sends under way together go one after the other, in their order.
            patience_ms: How long a send continues, beyond `resends`, while no node answers, or it starts or stops. Only
                for nodes that reported, since the producer was created, that they store nothing twice.
            in_flight_max: Sends under way at the same time: of an `AsyncProducer`, and of `Producer.send_soon`.

        Raises:
            ClientMisuse: A malformed address, unknown protocol or number out of range.
        """
        if timeout_ms <= 0 or in_flight_max <= 0:
            raise ClientMisuse("timeout_ms and in_flight_max must be above 0")
        self.address = address
        self._idl: Any = idl.load("producer")
        self._network: dict[str, Any] = {"protocol": protocol, "tls": tls, "token": token}
        self._timeout_ms = timeout_ms
        self._resending = Resending(
            resends=resends, pause_ms=resend_pause_ms, patience_ms=patience_ms, on_resend=on_resend
        )
        self._deduplicate = deduplicate
        self._in_flight_max = in_flight_max
        self._begin()

    def _begin(self) -> None:
        """Make what sends."""
        raise NotImplementedError

    def _new_connection(self, address: str = "") -> Any:
        return self._connection_class(address or self.address, getattr(self._idl, self._service), **self._network)


class TransactionSending(Sending, Generic[L]):
    """Those of a producer of transactions.

    Attributes:
        group: The producer group.
    """

    _service = "TransactionProducerService"

    def __init__(
        self,
        address: str,
        group: str,
        listener: L,
        *,
        timeout_ms: int = 5000,
        resends: int = 1,
        resend_pause_ms: int = 50,
        protocol: WireProtocol = "binary",
        tls: Tls | None = None,
        token: Token | None = None,
        on_resend: Callable[[Exception], None] | None = None,
        deduplicate: bool = True,
        patience_ms: int = 0,
        in_flight_max: int = IN_FLIGHT_MAX,
        check_batch_size: int = 16,
        check_linger_ms: int = 15_000,
        on_check_error: Callable[[Exception], None] | None = None,
        nodes: Sequence[str] = (),
    ) -> None:
        """Set up; `start` opens the connection for checks, the first send the other one.

        Args:
            address: As for `Producer`, like those up to `on_resend`.
            group: The producer group: programs that can say what became of each other's transactions.
            listener: Runs local transactions and knows what became of them.
            timeout_ms: How long the node may take for a half, and for a decision.
            resends: How often a half is sent again, and a decision that was not answered. A half that may already be
                stored is sent again only to nodes that deduplicate messages by number.
            resend_pause_ms: Wait before each.
            protocol: "binary" or "compact".
            tls: For an address by TLS: the CA, and what the client shows.
            token: Who this is, for nodes with rules: a token, or the path of its file. Left out: PYDDMQ_TOKEN_FILE or
                PYDDMQ_TOKEN of the environment; "" for none.
            on_resend: Called with the failure before each.
            deduplicate: Number messages, as for `Producer`, like the next one.
            patience_ms: How long a send continues, beyond `resends`, while no node answers.
            in_flight_max: As for `Producer`.
            check_batch_size: Checks fetched at once.
            check_linger_ms: How long a fetch waits at the node.
            on_check_error: Called for each fetch that failed, in the background; the next one follows after a pause of
                0.1 to 5 s.
            nodes: Addresses of the other nodes over the same Kafka cluster: each checks the transactions of its own
                partitions, so this producer fetches from all. Sends go to `address`.

        Raises:
            ClientMisuse: A malformed address, no group, unknown protocol, or a number out of range.
        """
        super().__init__(
            address,
            timeout_ms=timeout_ms,
            resends=resends,
            resend_pause_ms=resend_pause_ms,
            protocol=protocol,
            tls=tls,
            token=token,
            on_resend=on_resend,
            deduplicate=deduplicate,
            patience_ms=patience_ms,
            in_flight_max=in_flight_max,
        )
        self.group = group

        def make_checks() -> list[tuple[Any, ProducerGroupChecks]]:
            return [
                (self._new_connection(each), ProducerGroupChecks(
                    self._idl, group, batch_size=check_batch_size, linger_ms=check_linger_ms, on_error=on_check_error
                ))
                for each in dict.fromkeys((address, *nodes))
            ]  # fmt: skip

        self._make_checks = make_checks
        self._begin_checks(listener, self._make_checks())

    def _begin_checks(self, listener: L, checks: Sequence[tuple[Any, ProducerGroupChecks]]) -> None:
        """Make what answers checks, over a connection to each node."""
        raise NotImplementedError
