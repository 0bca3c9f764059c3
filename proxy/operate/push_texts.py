"""What the console and the command line say of pushes, in words."""

from __future__ import annotations

from upstream.views import PushView, TargetView

STATES = {"closed": "in", "open": "out", "half-open": "probed"}


def state_text(url: TargetView) -> str:
    """Whether a URL takes messages."""
    return STATES.get(url.state, url.state)


def throttled_text(push: PushView) -> str:
    """Targets that hold messages back, and why; empty without any."""
    parts = []
    if push.held:
        rate = f"{push.rate:,.10g}/s" if push.rate is not None else "its rate"
        parts.append(f"{push.held:,} wait for {rate}")
    if push.slow:
        parts.append(f"the receiver requested a lower rate: {push.slow:,} requests at a tenth of the rate")
    return "; ".join(parts)
