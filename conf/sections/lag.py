"""Settings of the lag journal: how often the node notes where its groups stand, and how long it keeps that."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, model_validator

from conf.base import Model, Reload, setting
from conf.durations import Duration, Wait, duration_ms
from conf.secrets import masked

_LIVE = Reload.LIVE
_MIB = 1024 * 1024
_EVERY_MS = (1_000, 3_600_000)

Keys = Literal["plain", "hashed", "off"]
Tier = Literal["raw", "minute", "hour"]


def _check_every(text: str) -> str:
    least, most = _EVERY_MS
    if not least <= duration_ms(text) <= most:
        raise ValueError(f"{text} is not within 1s and 1h; use for example 10s")
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
        f"{value!r} is not a valid share of the messages; write off, all, or a share above 0 and up to 1, such as 0.01"
    )


def _check_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.username is not None:
        raise ValueError(
            f"{masked(text)!r} is not a valid address; write for example https://alerts.example.com/lag, "
            "without a user name"
        )
    return text


AckShare = Annotated[Literal["off", "all"] | float, BeforeValidator(_read_ack_share)]
"""Which messages of a group an ack log has."""


class LagRules(Model):
    """The section `lag.rules`: thresholds by which lag is judged (docs/lag-rules.md)."""

    target: Wait = setting(
        "60s",
        "Maximum time lag of a group; `delayTimeThreshold` of a group or subscription has precedence.",
        reload=_LIVE,
    )
    target_messages: int | None = setting(
        None,
        "Maximum number of unfinished messages of a queue; `committedLagThreshold` has precedence.",
        reload=_LIVE,
        absent="no limit",
        ge=0,
    )
    floor_messages: int = setting(
        10, "A lag of this number of messages or fewer is treated as none.", reload=_LIVE, ge=0
    )
    floor: Wait = setting("1s", "A lag whose oldest message is at most this old is treated as none.", reload=_LIVE)
    dead_band: float = setting(
        0.05, "Share of the produce rate by which a lag may rise or fall without a trend.", reload=_LIVE, ge=0, lt=1
    )
    window: Duration = setting(
        "5m",
        "How far back trends look; at least as long as `stop`. If it is absent, at least five times `every`.",
        reload=_LIVE,
    )
    samples_min: int = setting(3, "With fewer samples in the window no trend is computed.", reload=_LIVE, ge=2)
    stale: Duration = setting(
        "60s",
        "Maximum age of the newest sample for a present verdict. If it is absent, at least three times `every`.",
        reload=_LIVE,
    )
    recent: Duration = setting("30s", "Time span of the displayed rates.", reload=_LIVE)
    growing: Duration = setting(
        "60s", "A lag that only rises for this long is a warning, also under the target.", reload=_LIVE
    )
    absent: Duration = setting("60s", "A group without an active client for this long has no consumer.", reload=_LIVE)
    stop: Duration = setting(
        "3m", "A queue with lag and without progress for this long is stopped or stalled.", reload=_LIVE
    )
    blocked_attempts: int = setting(
        2, "A message with this number of attempts that blocks others for longer than `stop` blocks its queue.",
        reload=_LIVE, ge=1,
    )  # fmt: skip
    poison_attempts: int = setting(
        5, "A message with this number of failures blocks its queue immediately.", reload=_LIVE, ge=1
    )
    all_fail: Duration = setting(
        "60s", "If several messages fail and none succeeds for this long, all fail.", reload=_LIVE
    )
    retention_percent: float = setting(
        80.0, "Share of the stored messages that a lag may reach before retention threatens it.", reload=_LIVE,
        gt=0, le=100,
    )  # fmt: skip
    loss_eta_limit: Duration = setting(
        "1h", "Retention threatens messages that it will delete sooner than this.", reload=_LIVE
    )
    late: Duration = setting("3s", "A timer or delayed message that is overdue for this long is late.", reload=_LIVE)
    undecided: Duration = setting(
        "4m", "A transaction that waits for a decision for this long is undecided.", reload=_LIVE
    )
    surge: float = setting(
        1.5, "A produce rate that rises by this factor within the window is a surge.", reload=_LIVE, gt=1
    )
    queues_min: int = setting(3, "A topic with fewer queues has no hot one.", reload=_LIVE, ge=3)

    @model_validator(mode="after")
    def _check_window(self) -> LagRules:
        if {"stop", "window"} <= self.model_fields_set and duration_ms(self.stop) > duration_ms(self.window):
            raise ValueError(
                f"stop is {self.stop} and window is {self.window}: window must be at least as long as stop"
            )
        return self

    @property
    def given(self) -> dict[str, Any]:
        """The settings that are written in the file, by their names in it."""
        fields = type(self).model_fields if self.model_fields_set else {}
        return {
            str(info.alias): value
            for name, info in fields.items()
            if name in self.model_fields_set and (value := getattr(self, name)) is not None
        }


class LagConfig(Model):
    """The `lag` section: what the node notes of consumption lag, for `pyddmq lag` and reports (docs/lag.md)."""

    enabled: bool = setting(True, "Whether the node keeps a lag journal.", reload=_LIVE)
    every: Annotated[str, AfterValidator(_check_every)] = setting(
        "10s",
        "How often it records every group's position, 1s to 1h; varied by up to a tenth, so that several "
        "nodes do not record simultaneously.",
        reload=_LIVE,
    )
    keys: Annotated[Keys, BeforeValidator(off_of_yaml)] = setting(
        "plain",
        "How the order key that blocks a queue is recorded: unchanged, as the first 16 hex digits of its "
        "SHA-256, or not at all.",
        reload=_LIVE,
    )
    keep: dict[Tier, Duration] = setting(
        {"raw": "2d", "minute": "35d", "hour": "400d"},
        "How long samples are kept: all (`raw`), by the minute, by the hour. An omitted tier keeps its default.",
        reload=_LIVE,
    )
    bytes_max: int = setting(
        512 * _MIB,
        "Maximum size of the lag journal in bytes; above it the oldest files are deleted early.",
        reload=_LIVE,
        ge=4 * _MIB,
    )
    webhook: Annotated[str, AfterValidator(_check_url)] | None = setting(
        None,
        "Address to which each change of a group's verdict is posted as JSON ([verdicts](lag.md#changes-of-verdict)).",
        reload=_LIVE,
    )
    webhook_timeout: Duration = setting("5s", "Time limit for an answer of the webhook.", reload=_LIVE)
    rules: LagRules = setting(
        LagRules(), "Thresholds by which lag is judged; `lagRules` of a group has precedence.", reload=_LIVE
    )

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
