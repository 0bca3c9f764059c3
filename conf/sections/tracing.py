"""The section `node.tracing`: which messages are traced, and where their spans go (docs/howto/trace.md)."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from conf.base import Model, Reload, setting
from conf.secrets import masked

_RESTART = Reload.RESTART
TRACE_ID = "{traceId}"


def _is_web_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.username
    except ValueError:
        return False


def _check_endpoint(text: str) -> str:
    if not _is_web_address(text):
        raise ValueError(
            f"{masked(text)!r} is not a valid address; write for example http://127.0.0.1:4318, without a user name"
        )
    return text


def _check_link(text: str) -> str:
    if not _is_web_address(text) or TRACE_ID not in text:
        raise ValueError(
            f"{masked(text)!r} is not a valid link; write for example https://traces.example.com/trace/{TRACE_ID}"
        )
    return text


class TracingConfig(Model):
    """The section `node.tracing`."""

    endpoint: Annotated[str, AfterValidator(_check_endpoint)] = setting(
        ...,
        "Address of a collector that accepts OTLP over HTTP, such as `http://127.0.0.1:4318`; without a path it is "
        "`/v1/traces` there.",
        reload=_RESTART,
    )
    service: str = setting("pyddmq", "Name of the service in traces.", reload=_RESTART, min_length=1, max_length=255)
    sample: float = setting(
        0.01,
        "Share of messages without a valid `traceparent` that are traced, chosen by their id.",
        reload=_RESTART,
        ge=0,
        le=1,
    )
    sample_callers: float = setting(
        1.0,
        "Share of the traces sampled by producers in which the node takes part, chosen by the trace id.",
        reload=_RESTART,
        ge=0,
        le=1,
    )
    queue: int = setting(
        4096,
        "Maximum spans that wait for the collector; further ones are dropped and counted.",
        reload=_RESTART,
        ge=512,
        le=1_000_000,
    )
    timeout: int = setting(
        5000, "Time limit in ms for one request to the collector.", reload=_RESTART, ge=100, le=60_000
    )
    link: Annotated[str, AfterValidator(_check_link)] | None = setting(
        None,
        f"Address of a trace in your trace viewer, with `{TRACE_ID}` in it; messages then show a link.",
        reload=_RESTART,
    )

    @property
    def url(self) -> str:
        """Where spans are posted."""
        parts = urlsplit(self.endpoint)
        return parts._replace(path="/v1/traces").geturl() if parts.path in ("", "/") else self.endpoint
