"""The configuration in force as people are shown it: what differs from the defaults, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conf import Config
from conf.secret_lines import MASK
from conf.secrets import NAMES_OF_SECRETS, masked

Settings = Mapping[str, Any]
"""By key, as in the file: values, lists and mappings."""


def settings_of(config: Config) -> Settings:
    """Return a configuration; what is the default is absent."""
    found: dict[str, Any] = without_secrets(config.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    return found


def without_secrets(value: Any, name: str = "") -> Any:
    """Return settings with what is most likely a secret replaced: by its name, or in the query or user of a URL."""
    if isinstance(value, dict):
        if value.keys() <= {"file", "env"}:
            return value  # The place of a secret.
        return {key: without_secrets(each, str(key)) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each, name) for each in value]
    if isinstance(value, str) and NAMES_OF_SECRETS.search(name):
        return MASK
    if isinstance(value, str) and "://" in value:
        address, question, _ = masked(value).partition("?")
        return f"{address}?{MASK}" if question else address
    return value
