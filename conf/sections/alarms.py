"""Settings of alarms about consumption lag: which statuses are one, where they are told, who is muted."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, model_validator

from conf.base import GroupName, Model, Reload, TopicName, setting
from conf.durations import Duration, Wait, duration_ms, wait_ms
from conf.secrets import masked

_LIVE = Reload.LIVE

AlarmStatus = Literal[
    "DATA_LOSS",
    "AHEAD",
    "REWIND",
    "BLOCKED",
    "STOP",
    "NOT_CONSUMED",
    "STALL",
    "UNKNOWN",
    "RETENTION_RISK",
    "WARN",
    "NO_OFFSET",
    "INCOMPLETE",
    "CATCHING_UP",
    "PAUSED",
    "SILENT",
]
"""Worst first, as the rules have them; OK is no alarm. A test compares them."""
Sink = Literal["file", "topic", "webhook"]
USUAL: list[AlarmStatus] = ["DATA_LOSS", "AHEAD", "REWIND", "BLOCKED", "STOP", "NOT_CONSUMED", "STALL", "SILENT"]


def moment_of(text: str) -> int:
    """Return a moment, ISO 8601 with a zone, as ms since 1970.

    Raises:
        ValueError: It is none.
    """
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        raise ValueError(f"{text!r} is no moment; write one with its zone, such as '2027-01-31T18:00:00+01:00'")
    return round(moment.timestamp() * 1000)


def _check_moment(text: str) -> str:
    moment_of(text)
    return text


def _check_url(text: str) -> str:
    try:
        parts = urlsplit(text)
        fits = parts.scheme in ("http", "https") and parts.hostname is not None and parts.port != 0
    except ValueError:
        fits = False
    if not fits or parts.username is not None:
        raise ValueError(
            f"{masked(text)!r} is no address; write one such as https://alarms.example.com/lag, without a name in it"
        )
    return text


class AlarmRuleConfig(Model):
    """One entry of `lag.alarms.rules`."""

    statuses: list[AlarmStatus] = setting(
        USUAL,
        "Statuses that are an alarm ([rules](lag-rules.md)); `SILENT` is a node without samples, which only "
        "`pyddmq lag watch` sees.",
        reload=_LIVE,
        min_length=1,
    )
    groups: list[str] = setting(["*"], "Names of groups, with `*` and `?`.", reload=_LIVE, min_length=1)
    for_: Wait = setting("0s", "How long a status must hold before it is an alarm.", reload=_LIVE, alias="for")
    close_after: Wait = setting("1m", "How long it must be gone before the alarm is closed.", reload=_LIVE)
    repeat: Wait = setting("0s", "How often an open alarm is told again; `0s`: never.", reload=_LIVE)
    sinks: list[Sink] = setting(["file"], "Where it is told: `file`, `topic`, `webhook`.", reload=_LIVE)

    @property
    def for_ms(self) -> int:
        """Milliseconds for which a status must hold."""
        return wait_ms(self.for_)

    @property
    def close_after_ms(self) -> int:
        """Milliseconds for which it must be gone."""
        return wait_ms(self.close_after)

    @property
    def repeat_ms(self) -> int:
        """Milliseconds between two tellings; 0: it is told once."""
        return wait_ms(self.repeat)


class MuteConfig(Model):
    """One entry of `lag.alarms.mute`."""

    group: GroupName = setting(..., "The group.", reload=_LIVE)
    until: Annotated[str, AfterValidator(_check_moment)] = setting(
        ..., "Up to when its alarms are not told: ISO 8601 with a zone, in quotes.", reload=_LIVE
    )
    reason: str = setting("", "Why, in a line.", reload=_LIVE, max_length=200)

    @property
    def until_ms(self) -> int:
        """Its end, ms since 1970."""
        return moment_of(self.until)


class LagAlarmsConfig(Model):
    """The section `lag.alarms` (docs/lag-alarms.md)."""

    rules: list[AlarmRuleConfig] = setting(
        [], "What is an alarm; the first entry that fits a group and status counts. None: there are no alarms.",
        reload=_LIVE, max_length=100,
    )  # fmt: skip
    file: str | None = setting(
        None,
        "File of JSON lines that alarms are added to, each once.",
        reload=_LIVE,
        absent="`pyddmq/lag-alarms/alarms.jsonl` in the data directory",
    )
    topic: TopicName | None = setting(
        None, "Topic of this node that alarms are published to, each once; one of `topics`.", reload=_LIVE
    )
    webhook: Annotated[str, AfterValidator(_check_url)] | None = setting(
        None, "Address that alarms are posted to as JSON, each at least once, with an `Idempotency-Key`.", reload=_LIVE
    )
    webhook_timeout: Duration = setting("5s", "How long the webhook may take to answer.", reload=_LIVE)
    mute: list[MuteConfig] = setting([], "Groups that are muted, besides those of `pyddmq lag mute`.", reload=_LIVE)

    @property
    def webhook_timeout_ms(self) -> int:
        """Milliseconds that the webhook may take."""
        return duration_ms(self.webhook_timeout)

    @model_validator(mode="after")
    def _check_places(self) -> LagAlarmsConfig:
        used = {sink for rule in self.rules for sink in rule.sinks}
        for sink, given in (("topic", self.topic), ("webhook", self.webhook)):
            if sink in used and given is None:
                raise ValueError(f"a rule tells the {sink}, and there is none; write `{sink}:` beside `rules:`")
        return self
