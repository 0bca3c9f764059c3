"""The configuration in force as people are shown it: what differs from the defaults, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from pydantic import BaseModel

from conf import Config
from conf.secret_lines import MASK
from conf.secrets import NAMES_OF_SECRETS, masked

Settings = Mapping[str, Any]
"""By key, as in the file: values, lists and mappings."""


def settings_of(config: Config, *, each_max: int | None = None) -> Settings:
    """Return a configuration; what is the default is absent.

    Args:
        config: The configuration.
        each_max: Maximum number of topics, and of groups; None: all.
    """
    found = _shown(config, exclude=None if each_max is None else {"topics", "groups"})
    if each_max is not None:
        for name, parts in (("topics", config.topics), ("groups", config.groups)):
            if parts:
                found[name] = {key: _shown(part) for key, part in islice(parts.items(), each_max)}
    return found


def settings_of_group(config: Config, name: str) -> Settings:
    """Return the settings of one group likewise; empty where it is not configured."""
    group = config.groups.get(name)
    return {} if group is None else _shown(group)


def _shown(part: BaseModel, *, exclude: set[str] | None = None) -> dict[str, Any]:
    dumped = part.model_dump(mode="json", by_alias=True, exclude_defaults=True, exclude=exclude)
    shown: dict[str, Any] = without_secrets(dumped)
    return shown


def without_secrets(value: Any, name: str = "") -> Any:
    """Return settings with what is most likely a secret replaced: by its name, or in the query or user of a URL.

    All that stands below such a name counts, numbers too.
    """
    if isinstance(value, dict):
        if value.keys() <= {"file", "env"}:
            return value  # The place of a secret.
        is_secret = NAMES_OF_SECRETS.search(name) is not None
        return {key: without_secrets(each, name if is_secret else str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each, name) for each in value]
    if value is not None and not isinstance(value, bool) and NAMES_OF_SECRETS.search(name):
        return MASK
    if isinstance(value, str) and "://" in value:
        address, question, _ = masked(value).partition("?")
        return f"{address}?{MASK}" if question else address
    return value
