"""Settings of the lag journal: how often the node notes where its groups stand, and how long it keeps that."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from conf.base import Model, Reload, setting
from conf.durations import Duration, duration_ms
from conf.secrets import masked

_LIVE = Reload.LIVE
_MIB = 1024 * 1024
_EVERY_MS = (1_000, 3_600_000)

Keys = Literal["plain", "hashed", "off"]
Tier = Literal["raw", "minute", "hour"]


def _check_every(text: str) -> str:
    least, most = _EVERY_MS
    if not least <= duration_ms(text) <= most:
        raise ValueError(f"{text} is not within 1s and 1h; take 10s")
    return text


def off_of_yaml(value: Any) -> Any:
    """Take YAML's `off`, which is false, for the word."""
    return "off" if value is False else value


def _read_ack_share(value: Any) -> Any:
    """Return `off`, `all`, or a share above 0 and up to 1."""
    value = off_of_yaml(value)
    if value in ("off", "all") or (type(value) in (int, float) and 0 < value <= 1):
        return float(value) if type(value) is int else value
    raise ValueError(
        f"{value!r} is not a share of the messages; write off, all, or a share above 0 and up to 1, such as 0.01"
    )


def _check_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.username is not None:
        raise ValueError(
            f"{masked(text)!r} is not a valid address; write one such as https://alerts.example.com/lag, without a "
            "user name"
        )
    return text


AckShare = Annotated[Literal["off", "all"] | float, BeforeValidator(_read_ack_share)]
"""Which messages of a group an ack log has."""


class LagConfig(Model):
    """The `lag` section: what the node notes of consumption lag, for `pyddmq lag` and reports (docs/lag.md)."""

    enabled: bool = setting(True, "Whether the node keeps a lag journal.", reload=_LIVE)
    every: Annotated[str, AfterValidator(_check_every)] = setting(
        "10s",
        "How often it records every group's position, 1s to 1h; each time up to a tenth sooner or later, so that many "
        "nodes do not do so together.",
        reload=_LIVE,
    )
    keys: Annotated[Keys, BeforeValidator(off_of_yaml)] = setting(
        "plain",
        "How the order key that holds a queue up is noted: as it is, as the first 16 hex digits of its SHA-256, or not "
        "at all.",
        reload=_LIVE,
    )
    keep: dict[Tier, Duration] = setting(
        {"raw": "2d", "minute": "35d", "hour": "400d"},
        "How long notes are kept: all (`raw`), by the minute, by the hour. A tier that is left out keeps its default.",
        reload=_LIVE,
    )
    bytes_max: int = setting(
        512 * _MIB,
        "Bytes that the lag journal may take; above that its oldest files go before their time.",
        reload=_LIVE,
        ge=4 * _MIB,
    )
    webhook: Annotated[str, AfterValidator(_check_url)] | None = setting(
        None,
        "Address to which each change of a group's verdict is posted as JSON ([verdicts](lag.md#changes-of-verdict)).",
        reload=_LIVE,
    )
    webhook_timeout: Duration = setting("5s", "How long the webhook may take to answer.", reload=_LIVE)

    @property
    def every_ms(self) -> int:
        """Milliseconds between two notes."""
        return duration_ms(self.every)

    @property
    def webhook_timeout_ms(self) -> int:
        """Milliseconds that the webhook may take."""
        return duration_ms(self.webhook_timeout)

    def keep_ms(self, tier: Tier) -> int:
        """Milliseconds for which a tier is kept."""
        return duration_ms(self.keep.get(tier) or LagConfig().keep[tier])
