"""Clients and their limits, from a live node."""

from __future__ import annotations

from proxy.limits.meter import Meter
from proxy.node.node import Node
from proxy.operate.views.limits import ClientView, HeldView, LimitsAnswer


def limits_of(node: Node, *, limit: int, name: str | None = None) -> LimitsAnswer | None:
    """Return clients, as many as `limit` says; one principal or address when given, None where it is not counted."""
    meters = [each for each in node.limiter.meters() if name in (None, each.name)]
    if name is not None and not meters:
        return None
    meters.sort(key=lambda each: (not (each.held and each.held_now()), each.kind != "principal", each.name))
    return LimitsAnswer(
        now_ms=node.seams.clock.wall_ms(),
        clients_total=len(meters),
        clients=[_client(node, each) for each in meters[:limit]],
    )


def _client(node: Node, meter: Meter) -> ClientView:
    is_principal = meter.kind == "principal"
    undecided = node.transactions.halves.owned[meter.name] + meter.halves if is_principal and node.is_open else 0
    pending = None if meter.pending_max is None else meter.pending.count(node.seams.clock.wall_ms())
    return ClientView(
        told_by=meter.kind,
        client=meter.name,
        connections=meter.connections.total(),
        parked_pulls=meter.parked.total(),
        open_transactions=undecided if is_principal else None,
        pending_timers=pending,
        held=[
            HeldView(
                limit=limit,
                text=held.said,
                since_ms=held.since_ms,
                waited=held.waited,
                refused=held.refused,
            )
            for limit, held in meter.held_now().items()
        ],
    )
