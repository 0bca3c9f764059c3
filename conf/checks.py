"""Contradictions between fields: pipelines, order keys, names that must exist, sizes that must fit.

Each check yields `(path, text)`: the path below the piece it was given, as keys and indexes of the file.
"""

from __future__ import annotations

import difflib
import heapq
import ipaddress
from collections.abc import Collection, Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from conf.actions import ActionError, ActionSpec, BlockingOptions
from conf.base import DLQ_PREFIX
from conf.foreign import GROOVY
from conf.models import LOW_LEVEL, GroupConfig, SubscriptionConfig
from conf.order_key import is_json_path
from conf.places import ConfigTextError, Path, Within
from conf.sections.node import NodeConfig

RECORD_OVERHEAD_BYTES = 64 * 1024
"""Room beside the body in a record or a frame: header, topic, properties of up to 32,767 bytes."""
MEMORY_SHARES = 8
"""The last eighth of the memory ceiling must hold the largest single thing that may be under way."""

NAMES_MAX = 20
"""Names that one error lists, of what there is."""
HINTS_MAX = 10
"""Errors of one file that say which name was probably meant."""

Finding = tuple[Path, str]


def nearest(name: str, known: Collection[str]) -> str:
    """Return `did you mean X? ` for the known name closest to this one, or nothing."""
    folded = {each.lower(): each for each in sorted(known)}
    close = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=0.6)
    return f"did you mean {folded[close[0]]}? " if close else ""


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address: 127.0.0.0/8, ::1, and the name `localhost`.

    Any other name may resolve to anything, also to something else tomorrow, so it counts as an address of the network.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    mapped = getattr(address, "ipv4_mapped", None)
    return (address if mapped is None else mapped).is_loopback


def collide(host: str, port: int | None, other_host: str, other_port: int | None) -> bool:
    """Whether two listeners want the same port; None means no port, 0 any free one."""
    is_same_host = host == other_host or not {"0.0.0.0", "::"}.isdisjoint((host, other_host))
    return port is not None and port == other_port != 0 and is_same_host


def check_access(node: NodeConfig, *, ruled: bool = False) -> Iterator[Finding]:
    """Find listeners that the network reaches although nothing says who may do what there.

    Args:
        node: Where it listens.
        ruled: Whether the configuration has a section `access`, whose rules hold for all ports.
    """
    if not (ruled or node.access == "open" or is_loopback(node.host)):
        yield (
            ("host",),
            (
                f"{node.host} is not a loopback address, and there are no rules: any client that reaches it may "
                "publish, pull and acknowledge for any group; add a section `access` with `rules` beside node "
                "(docs/security.md), `access: open` under node if this is intended, or use 127.0.0.1 here"
            ),
        )
    if not (ruled or is_loopback(node.admin_host)):
        yield (
            ("adminHost",),
            (
                f"{node.admin_host} is not a loopback address, and there are no rules (`access: open` under "
                "node does not apply to the admin port); add a section `access` with `rules` beside node "
                "(docs/security.md), or use 127.0.0.1 here"
            ),
        )
    if ruled and node.admin_token_file is not None:
        yield (
            ("adminTokenFile",),
            (
                "is the token of nodes without rules, and this node has a section `access`; remove it, create "
                "a token with `pyddmq access token create`, and give its principal operate, readBodies and "
                "administer under access.rules"
            ),
        )


def check_node(node: NodeConfig, *, ruled: bool = False) -> Iterator[Finding]:
    """Find listeners that are not meant to be open, ports that collide and sizes that do not fit into each other."""
    yield from check_access(node, ruled=ruled)
    ports: list[tuple[str, str, int | None]] = [
        ("producerPort", node.host, node.producer_port),
        ("consumerPort", node.host, node.consumer_port),
        ("adminPort", node.admin_host, node.admin_port),
    ]
    for index, (key, host, port) in enumerate(ports):
        for other, other_host, other_port in ports[:index]:
            if collide(host, port, other_host, other_port):
                yield (key,), f"{port} is also the port of {other}; use different ports, or 0 for any free one"
    if node.max_message_bytes + RECORD_OVERHEAD_BYTES > node.segment_bytes:
        yield (
            ("maxMessageBytes",),
            (
                f"{node.max_message_bytes} bytes and {RECORD_OVERHEAD_BYTES} for the rest of a record do not "
                f"fit into segmentBytes ({node.segment_bytes}); lower this value or raise segmentBytes"
            ),
        )
    if node.max_message_bytes + RECORD_OVERHEAD_BYTES > node.max_read_buffer_bytes:
        yield (
            ("maxMessageBytes",),
            (
                f"{node.max_message_bytes} bytes and {RECORD_OVERHEAD_BYTES} for the rest do not fit into a "
                f"frame of maxReadBufferBytes ({node.max_read_buffer_bytes}); lower this value or raise "
                "maxReadBufferBytes"
            ),
        )
    largest = max(node.max_read_buffer_bytes, node.max_recv_msgs_length)
    if largest * MEMORY_SHARES > node.memory_max:
        yield (
            ("memoryMax",),
            (
                f"{node.memory_max} bytes are too few for a frame of maxReadBufferBytes "
                f"({node.max_read_buffer_bytes}) or a reply of maxRecvMsgsLength ({node.max_recv_msgs_length}); "
                f"use {largest * MEMORY_SHARES} or more"
            ),
        )


def check_subscription(
    subscription: SubscriptionConfig, topics: Collection[str], *, hinted: bool = True
) -> Iterator[Finding]:
    """Find a topic that is not there, and a retry topic where there can be none.

    Args:
        subscription: Of a group.
        topics: Those that are listed.
        hinted: Look for the one that was meant: among thousands that takes a third of a second.
    """
    topic = subscription.topic
    if topic not in topics and not topic.startswith(DLQ_PREFIX):
        hint = (nearest(topic, topics) if hinted else "") or f"add it under topics, as `{topic}: {{}}`; "
        more = f" and {len(topics) - NAMES_MAX:,} more" if len(topics) > NAMES_MAX else ""
        there = ", ".join(heapq.nsmallest(NAMES_MAX, topics)) or "none"
        yield ("topic",), f"{topic!r} is not in topics; {hint}in topics: {there}{more}"
    yield from _check_retry_topic(subscription)


def _check_retry_topic(subscription: SubscriptionConfig) -> Iterator[Finding]:
    """D37: what has an order, and dead letters, are only ever retried in place."""
    if not subscription.retry_topic:
        return
    if subscription.order_key is not None:
        yield (
            ("retryTopic",),
            (
                "a message in the retry topic lets later ones of its key overtake it, which contradicts "
                f"orderKey ({subscription.order_key}); remove one of the two"
            ),
        )
    if subscription.topic.startswith(DLQ_PREFIX):
        yield (
            ("retryTopic",),
            (
                f"{subscription.topic} contains dead letters, which are retried in place and have no dead "
                "letters; remove it"
            ),
        )


def check_pipeline(subscription: SubscriptionConfig, actions: Mapping[str, ActionSpec]) -> Iterator[Finding]:
    """Find unknown actions, actions in the wrong place, an order key that nothing can read, and wrong options."""
    names = subscription.actions
    unknown = [index for index, name in enumerate(names) if name not in actions]
    for index in unknown:
        yield ("actions", index), _unknown_action(names[index], actions)
    specs = []
    for index, name in enumerate(names):
        if index not in unknown:
            try:
                specs.append(actions[name])
            except ActionError as error:
                yield ("actions", index), str(error)
    if len(specs) == len(names):
        yield from _check_places(specs)
        yield from _check_order_key(subscription, specs)
    yield from _check_low_level(subscription)
    for name, options in subscription.options.items():
        yield from _check_options(name, options, subscription, actions)
    for spec in specs:
        if spec.options_model is not None and spec.name not in subscription.options:
            yield from _check_needed(spec.name, spec.options_model, names.index(spec.name))


def _check_needed(name: str, model: type[BaseModel], index: int) -> Iterator[Finding]:
    """Find options that an action cannot do without where it is given none at all."""
    try:
        model.model_validate({})
    except ValidationError as error:
        needed = ", ".join(".".join(map(str, each["loc"])) or str(each["msg"]) for each in error.errors())
        yield ("actions", index), f"{name} needs options: {needed}; write them under options, as {name}: {{...}}"
    except BaseException as error:
        yield ("actions", index), f"options cannot be checked: a validator of {name} raised {type(error).__name__}"


def _unknown_action(name: str, actions: Mapping[str, ActionSpec]) -> str:
    known = ", ".join(sorted(actions))
    if name == "Groovy":
        return f"{GROOVY} does not exist"
    if ":" in name:
        return f"{name!r} cannot be loaded; write package.module:Class of an action that can be imported"
    return f"{name!r} is not a valid action; {nearest(name, actions)}use one of {known}, or package.module:Class"


def _check_places(specs: list[ActionSpec]) -> Iterator[Finding]:
    json_seen = gate_seen = False
    for index, spec in enumerate(specs):
        if spec.needs_json and not json_seen:
            yield ("actions", index), f"{spec.name} works on parsed JSON; put Json before it"
        if spec.is_gate and gate_seen:
            yield ("actions", index), f"{spec.name} is a second order gate; keep one of them"
        json_seen = json_seen or spec.provides_json
        gate_seen = gate_seen or spec.is_gate
    alone = next((index for index, spec in enumerate(specs) if spec.stands_alone), None)
    if alone is not None and len(specs) > 1:
        name = specs[alone].name
        text = f"{name} must be the only action, since no action runs before a fetch; write actions: [{name}]"
        yield ("actions", alone), text
        return
    last = specs[-1]
    if not last.may_be_last:
        yield (
            ("actions", len(specs) - 1),
            f"{last.name} cannot be the last action, because the message would not be delivered; end with PullServer",
        )


def _check_low_level(subscription: SubscriptionConfig) -> Iterator[Finding]:
    """Nothing runs, retries or buries what clients fetch: what promises that is a mistake."""
    if not subscription.is_low_level:
        return
    if subscription.order_key is not None:
        text = f"clients that fetch receive each queue in its order, and {LOW_LEVEL} keeps no other order; remove it"
        yield ("orderKey",), text
    if subscription.retry_topic:
        yield ("retryTopic",), f"a client that fetches handles failed messages itself ({LOW_LEVEL}); remove it"


def check_group(group: GroupConfig) -> Iterator[Finding]:
    """Check what a group's own settings and its topics say together."""
    if group.is_low_level and group.ack_log_one_in:
        text = f"clients of {group.group!r} acknowledge offsets ({LOW_LEVEL}), so single messages do not finish"
        yield ("ackLog",), f"{text}; remove it"


def _check_order_key(subscription: SubscriptionConfig, specs: list[ActionSpec]) -> Iterator[Finding]:
    if not is_json_path(subscription.order_key):
        return
    gate = next((index for index, spec in enumerate(specs) if spec.is_gate), len(specs) - 1)
    for index, spec in enumerate(specs[:gate]):
        if not spec.answers_at_once:
            yield (
                ("actions", index),
                (
                    f"{spec.name} is async or blocking and comes before the order gate, where the key "
                    f"{subscription.order_key} is not known yet and actions must answer immediately; put Async "
                    "before it"
                ),
            )
    if any(spec.provides_json for spec in specs[:gate]):
        return
    # W56: DDMQ takes this and silently delivers unordered.
    names = [spec.name for spec in specs if not spec.provides_json]
    yield (
        ("orderKey",),
        f"{subscription.order_key} is read from the parsed body, and no Json comes before {specs[gate].name}; write "
        f"actions: [Json, {', '.join(names)}]",
    )


def _check_options(
    name: str, options: Mapping[str, object], subscription: SubscriptionConfig, actions: Mapping[str, ActionSpec]
) -> Iterator[Finding]:
    if name not in subscription.actions:
        there = ", ".join(subscription.actions)
        yield ("options", name), f"{name!r} is not among the actions ({there}); add it there or remove its options"
        return
    try:
        spec = actions.get(name)
    except ActionError:
        return  # Said where the pipeline names it.
    if spec is None:
        return
    common = frozenset() if spec.call_options is None else spec.call_options.names()
    own = {key: value for key, value in options.items() if key not in common}
    if spec.call_options is not None:
        yield from _invalid(name, spec.call_options, {key: options[key] for key in options.keys() & common})
    if spec.options_model is not None:
        # A model that ignores what it does not know must not swallow these.
        taken = {field.alias or each for each, field in spec.options_model.model_fields.items()}
        for key in own.keys() & (BlockingOptions.names() - taken):
            kind = "blocking actions" if key == "process" else "async and blocking actions"
            yield ("options", name, key), f"is an option of {kind}, and {name} is not one; remove it"
            del own[key]
        yield from _invalid(name, spec.options_model, own)
    elif own:
        hint = f"no options but {' and '.join(sorted(common))}" if common else "no options"
        yield ("options", name), f"{name} has {hint}; remove {', '.join(own)}"


def _invalid(name: str, model: type[BaseModel], options: Mapping[str, object]) -> Iterator[Finding]:
    # A model of users' own ignores by default what it does not know, and with it every misspelt option.
    extra: Literal["allow", "forbid"] = "allow" if model.model_config.get("extra") == "allow" else "forbid"
    try:
        model.model_validate(options, extra=extra)
    except ValidationError as error:
        for each in error.errors():
            # A mark of pydantic's for "the key itself" is no step of the file.
            steps = tuple(step for step in each["loc"] if step != "[key]")
            path: Path = ("options", name, *steps)
            reason = each.get("ctx", {}).get("error")
            if isinstance(reason, ConfigTextError):
                path = (*path, Within(reason.line, reason.column))
            yield path, _said(each, model)
    except BaseException as error:
        # A validator of users' own; its text is their code, too.
        yield ("options", name), f"cannot be checked: a validator of {name} raised {type(error).__name__}"


def _said(error: ErrorDetails, model: type[BaseModel]) -> str:
    """Say what is wrong with an option."""
    if error["type"] == "value_error":
        return str(error["ctx"]["error"])
    if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
        known = [field.alias or name for name, field in model.model_fields.items()]
        return f"is not an option; {nearest(str(error['loc'][0]), known)}there are {', '.join(known) or 'none'}"
    if error["type"] == "missing":
        return f"is absent; add `{error['loc'][-1]}: ...`"
    return f"{error['msg'][:1].lower()}{error['msg'][1:]}"
