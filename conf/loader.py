"""Reads a configuration file whole: every error of it at once, each with file, line, key and what would be right."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from collections.abc import Mapping as ReadMapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pydantic import ValidationError

from conf import checks, kafka_checks, tls_checks
from conf.actions import ActionSpec
from conf.base import DLQ_PREFIX, Model
from conf.file_faults import file_fault
from conf.foreign import FOREIGN, TOP_LEVEL, DdmqField
from conf.models import Config, GroupConfig, SubscriptionConfig, TopicConfig
from conf.places import Path, located
from conf.problems import ConfigError, Problem
from conf.secret_lines import without_secret_lines
from conf.sections.access import AccessConfig, AccessRule, CertificateRule, JwtKey, NetworkRule
from conf.sections.admin import AdminConfig
from conf.sections.kafka import KafkaClusterConfig
from conf.sections.lag import LagConfig
from conf.sections.limits import AddressLimits, LimitsConfig, PrincipalLimits
from conf.sections.node import NodeConfig
from conf.sections.tls import TlsConfig
from conf.sentences import sentence
from conf.yaml_tree import TEXT_BYTES_MAX, Mapping, Scalar, Sequence, Tree, parse, plain

AnyModel = TypeVar("AnyModel", bound=Model)
Kind = TypeVar("Kind", Mapping, Sequence)

SECTIONS = ("node", "access", "admin", "limits", "lag", "tls", "kafka", "topics", "groups")

_ACCESS_LISTS: dict[str, type[Model]] = {
    "jwt": JwtKey,
    "certificates": CertificateRule,
    "networks": NetworkRule,
    "rules": AccessRule,
}
_LIMITS_LISTS: dict[str, type[Model]] = {"principals": PrincipalLimits, "addresses": AddressLimits}


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A configuration that may be used.

    Attributes:
        config: The typed configuration. A subscription to a disabled topic is itself disabled in it.
        warnings: What was accepted and has no effect, in the order of the file.
        digest: SHA-256 of the text in hex, to see whether a file changed.
        file: The name it was read from.
        shown: The text of a file, without secrets; "": a text was read.
        tree: What was read, for the places of keys.
    """

    config: Config
    warnings: list[Problem]
    digest: str
    file: str
    tree: Tree = field(repr=False)
    shown: str = field(default="", repr=False)

    def problem(self, path: Path, text: str) -> Problem:
        """Return a problem that was found later, with its place in the file."""
        return located(self.tree, self.file, path, text)


def load(path: str | os.PathLike[str], *, actions: ReadMapping[str, ActionSpec] | None = None) -> Loaded:
    """Read and check a file.

    Args:
        path: The YAML file.
        actions: What each action needs, by its name in YAML; None leaves pipelines unchecked.

    Returns:
        The configuration with its warnings.

    Raises:
        ConfigError: With every problem of the file.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            raw = file.read(TEXT_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(
            [Problem(name, None, "", f"cannot be read ({file_fault(error, path)}); pass a YAML file")]
        ) from error
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([Problem(name, line, "", "is not UTF-8; save the file as UTF-8")]) from error
    try:
        loaded = loads(text, file=name, actions=actions)
    except ConfigError as error:
        error.shown = without_secret_lines(text)
        raise
    if isinstance(loaded.tree, Mapping) and not loaded.tree.entries:
        # What an editor leaves for a moment, or a full disk for good: a reload of it would end every group.
        text = "is empty; write `topics:` and `groups:`, or `node: {}` for a node without them"
        raise ConfigError([Problem(name, None, "", text)])
    return replace(loaded, shown=without_secret_lines(text))


def loads(text: str, *, file: str = "<text>", actions: ReadMapping[str, ActionSpec] | None = None) -> Loaded:
    """Check a text as `load` does a file's.

    Raises:
        ConfigError: With every problem of the text.
    """
    tree = parse(text, file)
    reader = _Reader(tree, file, actions)
    config = reader.read()
    if reader.problems or config is None:
        raise ConfigError(sorted(dict.fromkeys(reader.problems), key=lambda problem: problem.line or 0))
    digest = hashlib.sha256(text.encode()).hexdigest()
    warnings = sorted(reader.warnings, key=lambda problem: problem.line or 0)
    return Loaded(config=config, warnings=warnings, digest=digest, file=file, tree=tree)


class _Reader:
    """Reads one tree piece by piece, so that a bad piece does not hide the errors of the others."""

    def __init__(self, tree: Tree, file: str, actions: ReadMapping[str, ActionSpec] | None) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []
        self._tree = tree
        self._file = file
        self._actions = actions
        self._written: dict[Path, Path] = {}
        """Where options stand that the file has as fields of DDMQ's, and subscriptions behind one that is wrong."""

    def read(self) -> Config | None:
        tree = self._tree
        if not isinstance(tree, Mapping):
            self._problem((), "has no keys at its top; write `node:`, `topics:` and `groups:`")
            return None
        for key in tree.entries:
            if key not in SECTIONS:
                hint = checks.nearest(key, SECTIONS)
                known = f"is not a section; {hint}the sections are {', '.join(SECTIONS[:-1])} and {SECTIONS[-1]}"
                self._problem((key,), TOP_LEVEL.get(key, known))
        access = self._read_access(tree)
        limits = self._read_limits(tree)
        ruled = "access" in tree.entries
        node = self._whole(NodeConfig, tree, "node")
        self._problems(("node",), checks.check_node(node, ruled=ruled))
        admin = self._whole(AdminConfig, tree, "admin")
        lag = self._whole(LagConfig, tree, "lag")
        tls = self._read_tls(tree, node, ruled=ruled)
        kafka = self._read_kafka(tree, node)
        topics = self._read_topics(tree)
        for name, topic in topics.items():
            self._problems(("topics", name), kafka_checks.check_topic(name, topic, node, kafka))
        groups = self._read_groups(tree, node, topics)
        if self.problems:
            return None
        return Config(
            node=node,
            access=access,
            admin=admin,
            limits=limits,
            lag=lag,
            tls=tls,
            kafka=kafka,
            topics=topics,
            groups=groups,
        )

    def _read_access(self, tree: Mapping) -> AccessConfig | None:
        if "access" not in tree.entries:
            return None
        section = tree.entries["access"][1]
        if not isinstance(section, Mapping):
            # Without a rule everything would be allowed, which is not what an empty section means.
            self._problem(("access",), "has no rules; write `rules:` and a list below it, `[]` denies everything")
            return None
        return self._listed(AccessConfig, "access", section, _ACCESS_LISTS)

    def _read_limits(self, tree: Mapping) -> LimitsConfig:
        text = "must be a mapping; write `limits:` and below it `addresses:` or `principals:` with a list"
        section = self._section(tree, ("limits",), Mapping, text)
        if section is None:
            return LimitsConfig()
        limits = self._listed(LimitsConfig, "limits", section, _LIMITS_LISTS) or LimitsConfig()
        if limits.principals and "access" not in tree.entries:
            text = "without a section `access` no client has a principal; limit `addresses`, or add the section"
            self._problem(("limits", "principals"), text)
        return limits

    def _listed(
        self, model: type[AnyModel], name: str, section: Mapping, lists: ReadMapping[str, type[Model]]
    ) -> AnyModel | None:
        """Check a section some keys of which are lists of pieces."""
        values: dict[str, object] = {}
        for key, piece in lists.items():
            if key not in section.entries:
                continue
            entries = section.entries[key][1]
            if not isinstance(entries, Sequence):
                self._problem((name, key), f"must be a list; write `{key}:` and below it lines that begin with `-`")
                return None
            found = [self._piece(piece, (name, key, at), entry) for at, entry in enumerate(entries.items)]
            values[key] = [each for each in found if each is not None]
        plain_keys = {key: plain(each) for key, (_, each) in section.entries.items() if key not in lists}
        try:
            return model.model_validate({**plain_keys, **values}, by_alias=True, by_name=False)
        except ValidationError as error:
            for each in error.errors():
                self._problem((name, *each["loc"]), sentence(each, model))
        return None

    def _read_tls(self, tree: Mapping, node: NodeConfig, *, ruled: bool) -> TlsConfig:
        tls = TlsConfig()
        if "tls" in tree.entries:
            read = self._piece(TlsConfig, ("tls",), tree.entries["tls"][1])
            if read is None:
                return tls
            tls = read
        self._problems(("tls",), tls_checks.check_tls(tls, node, ruled=ruled))
        self._problems(("node",), tls_checks.check_plain_ports(tls, node))
        return tls

    def _read_kafka(self, tree: Mapping, node: NodeConfig) -> dict[str, KafkaClusterConfig]:
        text = "must be a mapping of clusters; write `kafka:` and below it `main: {bootstrapServers: host:9092}`"
        section = self._section(tree, ("kafka",), Mapping, text) or Mapping(tree.line)
        clusters = {}
        for name, (_, entry) in section.entries.items():
            path: Path = ("kafka", name)
            cluster = self._piece(KafkaClusterConfig, path, entry)
            # A wrong one is there for the topics that name it: they are not wrong.
            clusters[name] = cluster or KafkaClusterConfig(bootstrap_servers="nowhere:9092")
            self._check_key(path, KafkaClusterConfig, {"kafka": {name: clusters[name]}})
            self._problems(path, kafka_checks.check_cluster(name, clusters[name], node))
        return clusters

    def _read_topics(self, tree: Mapping) -> dict[str, TopicConfig]:
        text = "must be a mapping of names; write `topics:` and below it `orders: {queues: 8}`"
        section = self._section(tree, ("topics",), Mapping, text) or Mapping(tree.line)
        topics = {}
        for name, (_, entry) in section.entries.items():
            path: Path = ("topics", name)
            # Some cluster of Kafka, whose names are the wider ones; the topic's settings say the rest.
            self._check_key(path, TopicConfig, {"topics": {name: TopicConfig(broker_cluster="-")}})
            topics[name] = self._piece(TopicConfig, path, entry) or TopicConfig()
        return topics

    def _check_key(self, path: Path, model: type[Model], alone: ReadMapping[str, object]) -> None:
        """Check the name of an entry, by a configuration that has it alone."""
        try:
            Config.model_validate(alone)
        except ValidationError as error:
            self._problem(path, sentence(error.errors()[0], model))

    def _read_groups(self, tree: Mapping, node: NodeConfig, topics: dict[str, TopicConfig]) -> dict[str, GroupConfig]:
        text = "must be a list; write `groups:` and below it `- group: orders-billing`"
        section = self._section(tree, ("groups",), Sequence, text) or Sequence(tree.line)
        groups: dict[str, GroupConfig] = {}
        places: dict[str, Path] = {}
        for index, entry in enumerate(section.items):
            path: Path = ("groups", index)
            group = self._piece(GroupConfig, path, entry, leave=("topics",))
            subscriptions = self._read_subscriptions(entry, path, node, topics)
            if group is None:
                continue
            if group.group in groups:
                self._problem((*path, "group"), f"{group.group!r} is listed twice; merge the two entries")
            groups[group.group] = group = group.model_copy(update={"topics": subscriptions})
            places[group.group] = path
            self._problems(path, checks.check_group(group))
            self._problems(path, kafka_checks.check_group(group, node, topics))
        for name, group in groups.items():
            for at, subscription in enumerate(group.topics):
                origin = subscription.topic.removeprefix(DLQ_PREFIX)
                if origin != subscription.topic and origin not in groups:
                    hint = checks.nearest(origin, groups) if len(self.warnings) < checks.HINTS_MAX else ""
                    self._warning(places[name], f"reads {subscription.topic}, and group {origin} is not listed; {hint}")
                found = kafka_checks.check_dead_letters(subscription, groups, node, topics)
                self._problems((*places[name], "topics", at), found)
        return groups

    def _read_subscriptions(
        self, group: Tree, path: Path, node: NodeConfig, topics: dict[str, TopicConfig]
    ) -> list[SubscriptionConfig]:
        path = (*path, "topics")
        text = "must be a list; write `topics:` and below it `- topic: orders`"
        section = self._section(group, path, Sequence, text) if isinstance(group, Mapping) else None
        if section is None:
            return []
        found: dict[str, SubscriptionConfig] = {}
        places: dict[str, Path] = {}
        for index, entry in enumerate(section.items):
            here: Path = (*path, index)
            subscription = self._piece(SubscriptionConfig, here, entry)
            if subscription is None:
                continue
            if subscription.topic in found:
                self._problem((*here, "topic"), f"{subscription.topic!r} is listed twice in its group; keep one entry")
            found[subscription.topic] = self._check_subscription(subscription, here, node, topics)
            places[subscription.topic] = here
        # What is found later counts the right ones alone.
        self._written.update(((*path, at), here) for at, here in enumerate(places.values()) if here[-1] != at)
        return list(found.values())

    def _check_subscription(
        self, subscription: SubscriptionConfig, path: Path, node: NodeConfig, topics: dict[str, TopicConfig]
    ) -> SubscriptionConfig:
        hinted = len(self.problems) < checks.HINTS_MAX
        self._problems(path, checks.check_subscription(subscription, topics, hinted=hinted))
        self._problems(path, kafka_checks.check_subscription(subscription, node, topics))
        if self._actions is not None:
            self._problems(path, checks.check_pipeline(subscription, self._actions))
        topic = topics.get(subscription.topic)
        if subscription.enabled and topic is not None and not topic.enabled:
            self._warning((*path, "topic"), f"topic {subscription.topic} is disabled, so this subscription is inactive")
            return subscription.model_copy(update={"enabled": False})
        return subscription

    def _section(self, above: Mapping, path: Path, kind: type[Kind], wanted: str) -> Kind | None:
        """Return a section; None where it is not there, or holds nothing or, which is a problem, something else."""
        section = above.entries.get(str(path[-1]), (0, None))[1]
        if isinstance(section, kind):
            return section
        if not (section is None or (isinstance(section, Scalar) and section.value is None)):
            self._problem(path, wanted)
        return None

    def _whole(self, model: type[AnyModel], tree: Mapping, name: str) -> AnyModel:
        """Check a section that is one mapping; return its defaults where it is not there, or too wrong."""
        read = self._piece(model, (name,), tree.entries[name][1]) if name in tree.entries else None
        return read or model()

    def _piece(self, model: type[AnyModel], path: Path, tree: Tree, *, leave: tuple[str, ...] = ()) -> AnyModel | None:
        """Check one mapping; with errors in it, return what it says without the wrong keys, for further checks."""
        if isinstance(tree, Scalar) and tree.value is None:
            tree = Mapping(tree.line)
        if not isinstance(tree, Mapping):
            self._problem(
                path, f"must be a mapping of keys, not {plain(tree)!r:.60}; write `key: value` lines below it"
            )
            return None
        values = {key: plain(value) for key, (_, value) in tree.entries.items() if key not in leave}
        self._take_foreign(model, path, values)
        try:
            return model.model_validate(values, by_alias=True, by_name=False)
        except ValidationError as error:
            errors = error.errors()
        for each in errors:
            steps = tuple(step for step in each["loc"] if step != "[key]")
            self._problem((*path, *steps), sentence(each, model))
            if steps:
                values.pop(str(steps[0]), None)
        try:
            return model.model_validate(values, by_alias=True, by_name=False)
        except ValidationError:
            return None

    def _take_foreign(self, model: type[Model], path: Path, values: dict[str, object]) -> None:
        for key, foreign in FOREIGN.get(model, {}).items():
            if key not in values:
                continue
            value = values.pop(key)
            if foreign.actions and self._take_option(foreign, (*path, key), value, values):
                continue
            if foreign.refuses(value):
                self._problem((*path, key), foreign.text)
            elif foreign.harmless:
                self._warning((*path, key), foreign.text)

    def _take_option(self, foreign: DdmqField, path: Path, value: object, values: dict[str, object]) -> bool:
        """Put a field of DDMQ's among the options of its action; false where the pipeline has no such action."""
        if value in (None, "", [], {}):
            return True
        pipeline = values.get("actions")
        named = [action for action in foreign.actions if isinstance(pipeline, list) and action in pipeline]
        options = values.setdefault("options", {})
        for action in named:
            own = options.setdefault(action, {}) if isinstance(options, dict) else None
            if not isinstance(own, dict):
                continue  # Said where the options are checked.
            if foreign.option in own:
                place = f"options.{action}.{foreign.option}"
                self._problem(path, f"is also given as {place}; keep {place}")
                continue
            own[foreign.option] = value
            self._written[(*path[:-1], "options", action, foreign.option)] = path
        return bool(named)

    def _problems(self, path: Path, found: Iterable[checks.Finding]) -> None:
        for below, text in found:
            self._problem((*path, *below), text)

    def _problem(self, path: Path, text: str) -> None:
        self.problems.append(self._located(path, text))

    def _warning(self, path: Path, text: str) -> None:
        self.warnings.append(self._located(path, text))

    def _located(self, path: Path, text: str) -> Problem:
        for length in range(len(path), 0, -1) if self._written else ():
            if (written := self._written.get(path[:length])) is not None:
                path = (*written, *path[length:])
                break
        return located(self._tree, self._file, path, text)
