"""Makes docs/configuration.md from the models."""

from __future__ import annotations

from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from conf.base import Model, Reload
from conf.foreign import FOREIGN, DdmqField
from conf.models import GroupConfig, SubscriptionConfig, TopicConfig
from conf.sections.access import AccessConfig, AccessRule, CertificateRule, JwtKey, NetworkRule
from conf.sections.admin import AdminConfig
from conf.sections.kafka import KafkaClusterConfig
from conf.sections.lag import LagConfig, LagRules
from conf.sections.limits import AddressLimits, LimitsConfig, PrincipalLimits
from conf.sections.node import NodeConfig
from conf.sections.tls import TlsConfig, TlsListenerConfig
from conf.sections.tracing import TracingConfig
from tools.numbers import without_numbers

_HEAD = """# Configuration

<!-- Made from the models by `make docs`; a test keeps the two equal. -->

One YAML file with nine sections, each of which may be left out:

```yaml
node:                       # ports, store, bounds
# access:                   # principals and their rights; without it every client may do everything
limits:                     # limits of one client
admin:                      # names of the admin port, its audit trail
lag:                        # recording of consumption lag
tls:                        # encrypted ports
kafka:                      # Kafka clusters for topics
topics:                     # name: settings
  orders: {queues: 8}
groups:                     # consumer groups and their subscriptions
  - group: orders-billing
    topics:
      - topic: orders
        orderKey: KEY
```

`conf/standalone.yaml` is a small file to start from, `conf/reference.yaml` shows every key with comments. Inside
`topics` and `groups` the names are DDMQ's where DDMQ has the field.

**Errors.** A file is applied as a whole or not at all. Unknown keys, repeated keys, wrong types and contradictions are
errors. All errors of a file are reported together, as `file:line: key.path: problem; correction`. Text is not accepted
as a number, nor a number as text. `pyddmq config check FILE` checks a file without a start. The limits are 4 MiB,
32 levels and 200,000 values, aliases expanded; `<<: *name` merges mappings.

**Reload.** SIGHUP, or a change of the file, reads it again. The column *change* shows how a changed field is applied.
*live*: immediately. *new generation*: the subscription drains, for at most drainSeconds, and starts again; other
subscriptions are not affected. *restart*: the whole reload is refused. A refused or wrong file leaves the running
configuration in force. Topics and groups can be added and removed. Removing one deletes nothing (D6), and clients may
still answer its messages in flight. The number of queues can only grow. The node serves during a reload: the file is
read in a thread, and groups change one after the other.
"""

_TAIL = """
## Rules between fields

- A subscription's topic is one of `topics`, or a dead-letter topic `%DLQ%<group>`. Other system topics cannot be read.
- A group, and a topic within a group, is listed once.
- The last action must be able to end a pipeline (PullServer). An action that works on parsed JSON needs Json before
  it. There is at most one order gate (Async).
- An orderKey that is a JSON path needs Json before the gate: before Async, or before the last action where there is no
  Async (W56: DDMQ accepts the opposite and silently delivers unordered). The path selects one value: no wildcards,
  filters or slices. `a.b` is read as `$.a.b`.
- `options` of an action are checked by the action's own model.
- `host` must be a loopback address (127.0.0.0/8, ::1, localhost) without a section `access` or `node.access: open`;
  `--host` too. `adminHost` must be a loopback address without a section `access`.
- `adminTokenFile` protects the admin port of a node without a section `access`; with such a section it is refused.
- A plain port that is null needs its service's port under `tls`. A port under `tls` needs certificate and key, and
  clientCa if it requests client certificates. Its `host` must be a loopback address without a section `access` or
  `node.access: open`, which does not apply to `admin`.
- `limits.principals` needs a section `access`: without it no client has a principal.
- Ports differ, or are 0. A message of maxMessageBytes and 64 KiB more must fit into a segment and into a frame.
- retryIntervals: 0 or more; -1 only at the end, and not alone (W20).
- A topic in Kafka has no `queues` (its partitions are its queues), no delays and no transactions. Its name has
  letters, digits, `. _ -`, up to 249; `^` begins a regular expression over Kafka's names.
- Groups that read from Kafka have no LowLevel and no retryTopic. Their enabled topics are in one cluster, and their
  name with `.DLQ` must be a valid topic name of Kafka.
- Other names of topics and groups have letters, digits, `_ - % |`; topics up to 127 bytes, groups up to 120 (D6).

## What differs from DDMQ

| field | DDMQ | here | why |
| --- | --- | --- | --- |
| where it is | ZooKeeper, or a file read once | one file, reloaded when it changes | one node, no ZooKeeper |
| enabled | false | true | listed topics are meant to run |
| disabled subscriptions | not checked | checked like the others | enabling one should not fail |
| disabling a group's last topic | ignored (W24) | stops it | |
| actions | required | `[Async, PullServer]` | |
| maxTps, totalMaxTps | required, 0 makes the limiter fail | more than 0, or omitted for no limit (W45, W79) | |
| a topic's maxTps | 1,024 | no limit | |
| brokerCluster, topicUnits | required | the topic's, omitted | a topic is in one cluster (W35, W47) |
| orderKey | any path that could be set | a path to one value, with Json before the gate | W56 |
| retryIntervals | leading or inner -1 and other negatives accepted | errors | W20 |
| maxRetry, retryIntervals used up | the message is dropped | it goes to `%DLQ%<group>` | W14 |
| consumeFromWhere | per broker client | per subscription, default first | |
| alarm thresholds changed | restarts the consumer (W46) | live, without effect on delivery | |
| unknown keys | an exception or ignored, by format | an error with line and suggestion | |
| host | binds every interface (W99) | 127.0.0.1; another address needs a section `access` | closed by default |
| group names | up to 255 bytes | up to 120 | `%DLQ%` and the name fit into a topic name |
| secrets in logs (W66) | printed at each change | a reload logs the names of changed fields, never values | |
"""

_SECTIONS: list[tuple[type[Model], str, str]] = [
    (NodeConfig, "node", "One node: ports, storage and limits."),
    (AccessConfig, "access", "Authentication and access rules ([security](security.md))."),
    (NetworkRule, "access.networks[]", "A list; the first entry that contains the address applies."),
    (CertificateRule, "access.certificates[]", "A list; the first entry that matches the certificate applies."),
    (JwtKey, "access.jwt[]", "A list of keys."),
    (AccessRule, "access.rules[]", "A list of permissions; entries only add permissions."),
    (
        LimitsConfig,
        "limits",
        "Limits of one client ([security](security.md#limits)). Changes apply immediately, also to open connections.",
    ),
    (
        PrincipalLimits,
        "limits.principals[]",
        "A list: the first line that names a principal counts, for each by itself.",
    ),
    (
        AddressLimits,
        "limits.addresses[]",
        "A list: the first line whose network has an address counts, for each by itself. A client keeps within both "
        "its principal's line and its address's.",
    ),
    (TracingConfig, "node.tracing", "Traces of messages ([how to trace](howto/trace.md))."),
    (AdminConfig, "admin", "What the admin port answers to, and its audit trail ([admin](admin.md))."),
    (LagConfig, "lag", "What the node notes of consumption lag, and how long it is kept."),
    (LagRules, "lag.rules, groups[].lagRules", "Thresholds of the [lag rules](lag-rules.md)."),
    (
        TlsConfig,
        "tls",
        "Encrypted ports beside the plain ones, and their certificates ([TLS](tls.md)). Files are read again with "
        "every reload, and when they change; paths are from the working directory of the process.",
    ),
    (TlsListenerConfig, "tls.producer, tls.consumer, tls.admin", "One encrypted port."),
    (
        KafkaClusterConfig,
        "kafka.CLUSTER",
        "A mapping: the key is the name of a Kafka cluster, for topics' `brokerCluster` ([Kafka](kafka.md)).",
    ),
    (TopicConfig, "topics.NAME", "A mapping: the key is the topic's name, and an empty entry is all defaults."),
    (GroupConfig, "groups[]", "A list of consumer groups."),
    (SubscriptionConfig, "groups[].topics[]", "What a group reads from one topic, and how."),
]

_TYPES: dict[Any, str] = {bool: "true or false", int: "whole number", float: "number", str: "text"}


def render() -> str:
    """Return docs/configuration.md as text."""
    parts = [_HEAD]
    for model, title, text in _SECTIONS:
        parts.append(
            f"\n## {title}\n\n{text}\n\n| key | type | default | change | meaning |\n| --- | --- | --- | --- | --- |\n"
        )
        parts += [_row(field) for field in model.model_fields.values()]
    parts.append(_TAIL)
    parts.append(_foreign())
    return without_numbers("".join(parts))


def _row(field: FieldInfo) -> str:
    extra: Any = field.json_schema_extra
    reload = Reload(extra["reload"])
    cells = (f"`{field.alias}`", _type(field), _default(field, extra), reload.value, str(field.description))
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"


def _default(field: FieldInfo, extra: dict[str, Any]) -> str:
    if field.default is PydanticUndefined:
        return "required"
    if field.default is None:
        return str(extra.get("absent", "none"))
    if isinstance(field.default, Model):
        return "all defaults"
    if isinstance(field.default, bool):
        return "`true`" if field.default else "`false`"
    if isinstance(field.default, int):
        return f"{field.default:,}" if field.default >= 10_000 else str(field.default)
    return f"`{str(field.default).replace(chr(39), '')}`"


def _type(field: FieldInfo) -> str:
    bounds = _bounds(field.metadata)
    name, inner = _type_name(field.annotation)
    return f"{name} {bounds or inner}".strip()


def _type_name(annotation: Any) -> tuple[str, str]:
    """Return the name of a type and its bounds, None and validators left out."""
    origin = get_origin(annotation)
    if origin is Annotated:
        name, inner = _type_name(get_args(annotation)[0])
        return name, _bounds(list(getattr(annotation, "__metadata__", ()))) or inner
    if origin in (Union, UnionType):
        names = [_type_name(each) for each in get_args(annotation) if each is not NoneType]
        return " or ".join(name for name, _ in names), names[0][1]
    if origin is Literal:
        return " or ".join(f"`{each}`" for each in get_args(annotation)), ""
    if origin is list:
        item = get_args(annotation)[0]
        return ("list of whole numbers" if item is int else "list of text" if item is str else "list"), ""
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, Model)):
        return "mapping", ""
    return _TYPES[annotation], ""


def _bounds(metadata: list[Any]) -> str:
    """Return bounds as `1..1,024`, `>= 1`, `> 0`; only those of numbers."""
    low = high = above = None
    for each in metadata:
        each_metadata = each.metadata if isinstance(each, FieldInfo) else [each]
        for bound in each_metadata:
            low = getattr(bound, "ge", low)
            high = getattr(bound, "le", high)
            above = getattr(bound, "gt", above)
    if low is not None and high is not None:
        return f"{low:,}..{high:,}"
    return f"> {above}" if above is not None else f">= {low:,}" if low is not None else ""


def _foreign() -> str:
    lines = [
        "\n## DDMQ's fields that are not used, or are options of an action\n\n*warning*: accepted, with the text as a "
        "warning. *error*: would change what is delivered, so it is refused unless empty or at DDMQ's default (D23). "
        "*option*: read as the option of an action, which is how the pages write it; a warning where the pipeline has "
        "no such action.\n\n"
        "| where | field | here | text |\n| --- | --- | --- | --- |\n"
    ]
    for model, title, _ in _SECTIONS:
        lines += [_foreign_row(title, name, foreign) for name, foreign in FOREIGN.get(model, {}).items()]
    return "".join(lines)


def _foreign_row(title: str, name: str, foreign: DdmqField) -> str:
    kind = "option" if foreign.actions else "warning" if foreign.harmless else "error"
    text = f"`{foreign.option}` of {' and of '.join(foreign.actions)}" if foreign.actions else foreign.text
    return f"| {title} | `{name}` | {kind} | {text} |\n"
