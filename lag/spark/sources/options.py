"""Options of the data sources: texts as Spark hands them over, read once, with an error that says what is right."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

MOMENT_MS_MIN: Final = 946_684_800_000
MOMENT_MS_END: Final = 253_402_300_800_000
"""The years 2000 to 9999, as in `conf.moments`, which executors do not have: seconds and microseconds are outside."""


class OptionRefused(ValueError):
    """An option has a value that means nothing, or is missing; the sentence says what would be right."""


def required(options: Mapping[str, str], name: str, meaning: str) -> str:
    """Return an option that must be there. Raises OptionRefused."""
    value = options.get(name, "").strip()
    if not value:
        raise OptionRefused(f"option {name!r} is missing: {meaning}")
    return value


def paths(options: Mapping[str, str], meaning: str) -> tuple[str, ...]:
    """Return the paths of the option `path`, which stand behind each other with commas. Raises OptionRefused."""
    return tuple(each.strip() for each in required(options, "path", meaning).split(",") if each.strip())


def check_columns(schema: StructType, kinds: Mapping[str, str]) -> list[str]:
    """Return the names of a schema's columns, which are of `kinds`. Raises OptionRefused: it has others."""
    for field in schema.fields:
        kind, given = kinds.get(field.name), field.dataType.simpleString()
        if kind is None:
            raise OptionRefused(f"column {field.name!r} does not exist; use one of {', '.join(kinds)}")
        if given != kind:
            raise OptionRefused(f"column {field.name!r} is {kind}, and the schema has it as {given}")
    return [field.name for field in schema.fields]


def names(options: Mapping[str, str], name: str) -> frozenset[str] | None:
    """Return names that stand behind each other with commas; None: the option is not there."""
    value = options.get(name)
    if value is None:
        return None
    return frozenset(each.strip() for each in value.split(",") if each.strip())


def numbers(options: Mapping[str, str], name: str) -> frozenset[int] | None:
    """Return whole numbers that stand behind each other with commas; None: not there. Raises OptionRefused."""
    found = names(options, name)
    if found is None:
        return None
    if not all(each.isdigit() for each in found):
        raise OptionRefused(f"option {name!r} must be integers separated by commas, got {options[name]!r}")
    return frozenset(int(each) for each in found)


def number(options: Mapping[str, str], name: str, default: int, *, at_least: int) -> int:
    """Return a whole number. Raises OptionRefused."""
    value = options.get(name)
    if value is None:
        return default
    try:
        found = int(value)
    except ValueError:
        found = at_least - 1
    if found < at_least:
        raise OptionRefused(f"option {name!r} must be an integer of at least {at_least}, got {value!r}")
    return found


def moment_ms(options: Mapping[str, str], name: str) -> int | None:
    """Return a moment, Unix milliseconds or ISO 8601, as milliseconds; None: not there. Raises OptionRefused."""
    value = options.get(name)
    if value is None:
        return None
    if re.fullmatch(r"\d{1,16}", value):
        found = int(value)
    else:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            text = f"invalid option {name!r} {value!r}; write 2024-05-06T07:08:09Z or Unix milliseconds"
            raise OptionRefused(text) from None
        found = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    if not MOMENT_MS_MIN <= found < MOMENT_MS_END:
        raise OptionRefused(
            f"invalid option {name!r} {value!r}: as milliseconds since 1970 it is not in the years 2000 to 9999"
        )
    return found


def spans(options: Mapping[str, str], name: str) -> dict[str, dict[int, tuple[int, int]]] | None:
    """Return offsets by topic and queue, from a first one to below another; None: not there. Raises OptionRefused."""
    value = options.get(name)
    if value is None:
        return None
    try:
        return {
            topic: {int(queue): (int(first), int(end)) for queue, (first, end) in queues.items()}
            for topic, queues in json.loads(value).items()
        }
    except (ValueError, TypeError, AttributeError):
        raise OptionRefused(
            f'invalid option {name!r} {value[:100]!r}; write JSON of the form {{"topic": {{"queue": [first, end]}}}}'
        ) from None


def is_pushed(options: Mapping[str, str]) -> bool:
    """Whether filters of a query reach the source (`pushdown`). Raises OptionRefused."""
    return one_of(options, "pushdown", ("true", "false"), "false") == "true"


def one_of(options: Mapping[str, str], name: str, allowed: Collection[str], default: str) -> str:
    """Return one of some words. Raises OptionRefused."""
    value = options.get(name, default)
    if value not in allowed:
        raise OptionRefused(f"invalid option {name!r} {value!r}; use one of {', '.join(allowed)}")
    return value
