"""The template engine of the console, and how templates write figures."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files
from urllib.parse import quote

import jinja2
import msgspec
from markupsafe import Markup, escape

from proxy.admin.console.charts import sparkline
from proxy.operate.moments import moment_text
from proxy.operate.text import age, amount, byte_size, duration

PACKAGE = "proxy.admin.console"
SHARED = ("parts.html", "pages.html", "shell.html")


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """Return the engine, with every template loaded from the package."""
    made = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        loader=jinja2.FunctionLoader(_source),
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(
        age=age,
        ago=lambda since_ms, now_ms: age(max(0, now_ms - since_ms) / 1000),
        byte_size=byte_size,
        count=lambda value: "?" if value is None else f"{value:,}",
        duration=duration,
        link=lambda text: quote(str(text), safe=""),
        moment=moment_text,
        clock=lambda wall_ms: moment_text(wall_ms)[11:19],
        rate=_rate,
        setting=lambda value: value if isinstance(value, str) else msgspec.json.encode(value).decode(),
        ticks=_ticks,
        words=lambda text: str(text).replace("_", " "),
        record=lambda value: msgspec.json.encode(value).decode(),
        quoted=_quoted,
    )
    made.globals.update(amount=amount, sparkline=sparkline)
    return made


def load(name: str) -> None:
    """Compile the template of a page, and what all pages share, unless that was done: a tenth of a second."""
    for each in (name, *SHARED):
        environment().get_template(each)


def resource(name: str) -> bytes:
    """Return a file of the package."""
    return files(PACKAGE).joinpath(name).read_bytes()


def _source(name: str) -> str | None:
    try:
        return resource(f"templates/{name}").decode()
    except OSError:
        return None


def _quoted(value: object) -> Markup:
    """Write a value as JSON in an attribute with its quotation marks: those of the JSON need no escape."""
    text = msgspec.json.encode(value).decode()
    return Markup("'" + text.replace("&", "&amp;").replace("<", "&lt;").replace("'", "&#39;") + "'")


def _rate(value: float | None) -> str:
    """Write a rate per second with three digits."""
    if value is None:
        return "?"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _ticks(text: str) -> Markup:
    """Write text with `code` in backticks as code."""
    parts = str(text).split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    return Markup("").join(
        Markup("<code>{}</code>").format(each) if place % 2 else escape(each) for place, each in enumerate(parts)
    )
