"""Turns what pydantic found into a sentence: what is wrong; what would be right."""

from __future__ import annotations

import re
from typing import Any, get_args

from pydantic.alias_generators import to_camel
from pydantic_core import ErrorDetails

from conf.base import Model
from conf.checks import nearest
from conf.durations import DURATION
from conf.foreign import SPELLINGS

_WANTED = {
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list, such as [a, b]",
    "dict_type": "a mapping of keys",
    "model_type": "a mapping of keys",
}

_BOUNDS = {
    "greater_than": ("gt", "more than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}

_LENGTHS = {
    "too_short": ("min_length", "has too few entries; the minimum is"),
    "too_long": ("max_length", "has too many entries; the maximum is"),
    "string_too_short": ("min_length", "is too short; its length must be at least"),
    "string_too_long": ("max_length", "is too long; its length must be at most"),
}


def sentence(error: ErrorDetails, model: type[Model]) -> str:
    """Say one error in words.

    Args:
        error: An entry of `ValidationError.errors()`, whose first `loc` step is a key of `model`.
        model: The model that was checked.
    """
    kind = error["type"]
    facts = error.get("ctx", {})
    key, model = _innermost(error["loc"], model)
    if kind == "extra_forbidden":
        return _unknown_key(str(error["loc"][-1]), model)
    if kind == "missing":
        return f"is missing; add `{error['loc'][-1]}: ...`"
    if kind in _WANTED:
        return f"must be {_WANTED[kind]}, is {_shown(error['input'])}{_type_hint(kind, error['input'], key, model)}"
    if kind in _BOUNDS:
        fact, words = _BOUNDS[kind]
        return f"is {error['input']}; must be {words} {_number(facts[fact])}{_default_hint(key, model)}"
    if kind in _LENGTHS:
        fact, words = _LENGTHS[kind]
        return f"{words} {facts[fact]}"
    if kind == "literal_error":
        return f"is {_shown(error['input'])}; write {facts['expected']}"
    if kind == "value_error":
        return str(facts["error"])
    return f"{error['msg']}, is {_shown(error['input'])}{_default_hint(key, model)}"


def _innermost(place: tuple[str | int, ...], model: type[Model]) -> tuple[str, type[Model]]:
    """Return the key that a place names and the model that it is of: that of a mapping within `model` where it is."""
    key, *rest = map(str, place or ("",))
    annotation = next((each.annotation for each in model.model_fields.values() if each.alias == key), None)
    # A mapping that may be left out is a union with None.
    for inner in (annotation, *get_args(annotation)):
        if rest and isinstance(inner, type) and issubclass(inner, Model):
            return _innermost(tuple(rest), inner)
    return key, model


def keys_of(model: type[Model]) -> list[str]:
    """Names that the fields of a model have in YAML, in their order."""
    return [str(field.alias) for field in model.model_fields.values()]


def _unknown_key(key: str, model: type[Model]) -> str:
    known = keys_of(model)
    if key in SPELLINGS and SPELLINGS[key].split()[0] in known:
        return f"is not a known key; write {SPELLINGS[key]}"
    if to_camel(key) in known:
        return f"is not a known key; write {to_camel(key)}"
    return f"is not a known key; {nearest(key, known)}the keys are {', '.join(known)}"


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value!r:.60}"
    return "a list" if isinstance(value, list) else "a mapping"


def _number(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


_SPAN = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(ms|s|sec|m|min|h|d)")
_SPAN_MS = {"ms": 1, "s": 1000, "sec": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _span_hint(span: re.Match[str], key: str, model: type[Model]) -> str:
    """Say in which unit a time is counted that was written with one."""
    ms = round(float(span[1]) * _SPAN_MS[span[2]])
    for ending, unit, size in (("Seconds", "seconds", 1000), ("Sec", "seconds", 1000), ("Hours", "hours", 3_600_000)):
        if key.endswith(ending):
            return f"; it is in {unit}: write {_number(ms / size)}"
    field = next((each for each in model.model_fields.values() if each.alias == key), None)
    if field is not None and re.search(r"\b(ms|milliseconds)\b", field.description or ""):
        return f"; it is in milliseconds: write {ms}"
    return "; write a number without a unit"


_SIZE = re.compile(r"(\d{1,9})\s*([KMGT])(i?)B?", re.IGNORECASE)


def _size_hint(size: re.Match[str]) -> str:
    """Say how many bytes a size is that was written with a unit; `512MB` is decimal, `512M` and `512MiB` are binary."""
    base = 1000 if not size[3] and size[0][-1] in "bB" else 1024
    return f"; it is in bytes: write {int(size[1]) * base ** (1 + 'KMGT'.index(size[2].upper()))}"


def _quotes_hint(value: bool | float, key: str, model: type[Model]) -> str:
    """Say how a value that YAML took for a number is text; a number where a duration belongs lacks its unit."""
    field = next((each for each in model.model_fields.values() if each.alias == key), None)
    is_duration = field is not None and isinstance(field.default, str) and DURATION.fullmatch(field.default)
    if is_duration and not isinstance(value, bool):
        return f"; write a duration with its unit, such as {value}s"
    return "; put it in quotes"


def _type_hint(kind: str, value: Any, key: str, model: type[Model]) -> str:
    if kind == "string_type" and isinstance(value, bool | int | float):
        return _quotes_hint(value, key, model)
    if kind in ("int_type", "float_type") and isinstance(value, str) and value.replace(".", "", 1).isdigit():
        return f"; write {value} without quotes"
    if kind in ("int_type", "float_type") and isinstance(value, str) and (span := _SPAN.fullmatch(value.strip())):
        return _span_hint(span, key, model)
    if kind == "int_type" and isinstance(value, str) and (size := _SIZE.fullmatch(value.strip())):
        return _size_hint(size)
    if kind == "int_type" and isinstance(value, float) and value.is_integer():
        return f"; write {int(value)}"
    if kind == "list_type" and isinstance(value, str):
        return f"; write [{value}]"
    if value is None:
        return "; set a value or remove the key"
    return ""


def _default_hint(key: str, model: type[Model]) -> str:
    """Say what leaving the key out would mean."""
    for field in model.model_fields.values():
        if field.alias != key or field.is_required():
            continue
        extra: Any = field.json_schema_extra
        absent = extra.get("absent") if isinstance(extra, dict) else None
        if absent is not None:
            return f", or omit it for {absent}"
        if isinstance(field.default, int | str) and not isinstance(field.default, bool):
            return f" (default {field.default})"
    return ""
