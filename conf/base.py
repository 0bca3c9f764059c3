"""What every configuration model shares: strictness, spelling, and the names of topics, groups and clusters.

In YAML a field has its camelCase name (DDMQ's where DDMQ has the field), in Python the snake_case of it. Values are
checked strictly: text is not taken for a number nor a number for text, so that a slip of the pen is an error.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

GROUP_BYTES_MAX = 120
"""So that `%DLQ%` and the group fit into a topic name (D6)."""
TOPIC_BYTES_MAX = 127
"""The record format's one-byte topic length as RocketMQ uses it (D6)."""
KAFKA_TOPIC_MAX = 249
"""Characters of a topic's name in Kafka."""
DLQ_PREFIX = "%DLQ%"
RETRY_PREFIX = "%RETRY%"

_NAME = re.compile(r"[A-Za-z0-9_|%-]+\Z")
_KAFKA_NAME = re.compile(r"[A-Za-z0-9._-]+\Z")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+\Z")
_SYSTEM_TOPICS = frozenset(
    {
        "SCHEDULE_TOPIC_XXXX",
        "RMQ_SYS_TRANS_HALF_TOPIC",
        "RMQ_SYS_TRANS_OP_HALF_TOPIC",
        "TRANS_CHECK_MAX_TIME_TOPIC",
        "TBW102",
        "SELF_TEST_TOPIC",
        "OFFSET_MOVED_EVENT",
        "BenchmarkTest",
    }
)


class Reload(Enum):
    """What it takes for a changed field to have effect (D22)."""

    LIVE = "live"
    """At once, in the running node."""
    GENERATION = "new generation"
    """The subscription drains and starts again; others are not disturbed."""
    RESTART = "restart"
    """A reload that changes it is refused."""


class Model(BaseModel):
    """Base of the models: frozen, strict, unknown keys refused, camelCase in files. Lists are read, never changed."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=to_camel,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
    )


def setting(default: Any, description: str, *, reload: Reload, absent: str | None = None, **bounds: Any) -> Any:
    """Make a model field with its documentation.

    Args:
        default: Value when the key is absent; `...` makes the key required.
        description: One or two sentences for docs/configuration.md, with the unit.
        reload: What a change of it takes.
        absent: What leaving the key out means, where the default value does not say it.
        bounds: `gt`, `ge`, `le`, `max_length` ... as for pydantic's Field.
    """
    extra: dict[str, Any] = {"reload": reload}
    if absent is not None:
        extra["absent"] = absent
    return Field(default, description=description, json_schema_extra=extra, **bounds)


def reload_of(model: type[BaseModel], attribute: str) -> Reload:
    """Return what a change of this field takes.

    Raises:
        KeyError: The model has no such field.
    """
    extra: Any = model.model_fields[attribute].json_schema_extra
    assert isinstance(extra, dict), f"{model.__name__}.{attribute} was not made by setting()"
    return Reload(extra["reload"])


def is_system_topic(name: str) -> bool:
    """Whether a topic belongs to the broker (RocketMQ's system names, retry and dead-letter topics)."""
    return name in _SYSTEM_TOPICS or name.lower().startswith("rmq_sys_") or name.startswith((DLQ_PREFIX, RETRY_PREFIX))


def check_topic_name(name: str) -> str:
    """Return the name when an ordinary topic may have it.

    Raises:
        ValueError: A sentence that says what a topic may be called.
    """
    _check_name(name, "a topic", TOPIC_BYTES_MAX)
    if is_system_topic(name):
        raise ValueError(f"{name!r} is reserved by the broker; choose another name")
    return name


def is_kafka_topic(name: str) -> bool:
    """Whether Kafka takes a name for a topic."""
    return bool(_KAFKA_NAME.match(name)) and name not in (".", "..") and len(name) <= KAFKA_TOPIC_MAX


def is_topic_pattern(name: str) -> bool:
    """Whether a name under `topics` is a regular expression, for topics in Kafka (D55)."""
    return name.startswith("^")


def check_listed_topic(name: str) -> str:
    """Return the name when it may stand under `topics`: an ordinary one, one of Kafka, or an expression for those.

    Whether the topic is in Kafka is a matter of its settings, so those say the rest.

    Raises:
        ValueError: A sentence that says what a topic may be called.
    """
    own = "." not in name and not is_topic_pattern(name) and len(name) <= TOPIC_BYTES_MAX
    return check_topic_name(name) if own or not (is_kafka_topic(name) or is_topic_pattern(name)) else name


def check_subscribed_topic(name: str) -> str:
    """Return the name when a group may subscribe to it: a listed topic or a dead-letter topic (D16, D34).

    Raises:
        ValueError: A sentence that says what may be subscribed.
    """
    if name.startswith(DLQ_PREFIX):
        check_group_name(name.removeprefix(DLQ_PREFIX))
        return name
    return check_listed_topic(name)


def check_group_name(name: str) -> str:
    """Return the name when a consumer group may have it.

    Raises:
        ValueError: A sentence that says what a group may be called.
    """
    _check_name(name, "a group", GROUP_BYTES_MAX)
    if name.startswith((DLQ_PREFIX, RETRY_PREFIX)):
        raise ValueError(f"{name!r} starts with a prefix reserved by the broker; choose another name")
    return name


def _check_name(name: str, what: str, bytes_max: int) -> None:
    if not name:
        raise ValueError(f"the name is empty; {what} has a name of 1 to {bytes_max} letters, digits, `_ - % |`")
    if not _NAME.match(name):
        raise ValueError(f"{name!r} has a character that is not allowed in {what}; use letters, digits, `_ - % |`")
    if len(name) > bytes_max:
        raise ValueError(f"the name has {len(name)} characters; the maximum for {what} is {bytes_max}")


def _check_plain_name(name: str) -> str:
    if not _PLAIN_NAME.match(name):
        raise ValueError(f"{name!r} is not a plain name; use letters, digits, `_ . -`, at least one")
    return name


TopicName = Annotated[str, AfterValidator(check_topic_name)]
ListedTopicName = Annotated[str, AfterValidator(check_listed_topic)]
SubscribedTopicName = Annotated[str, AfterValidator(check_subscribed_topic)]
GroupName = Annotated[str, AfterValidator(check_group_name)]
PlainName = Annotated[str, AfterValidator(_check_plain_name), Field(max_length=64)]
