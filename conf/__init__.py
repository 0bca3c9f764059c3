"""Typed configuration: the models, the loader that names file, line and key, and commented YAML examples.

Imports nothing of this project. What an action needs from its subscription is handed to the loader as a mapping.
`conf.diff` compares two configurations for a reload.
"""

from conf.actions import ActionError, ActionSpec
from conf.base import DLQ_PREFIX, GROUP_BYTES_MAX, TOPIC_BYTES_MAX, check_group_name, check_topic_name, is_system_topic
from conf.loader import Loaded, load, loads
from conf.models import Config, GroupConfig, SubscriptionConfig, TopicConfig
from conf.order_key import is_json_path
from conf.problems import ConfigError, Problem
from conf.sections.kafka import KafkaClusterConfig
from conf.sections.lag import LagConfig, LagRules
from conf.sections.node import NodeConfig
from conf.sections.tls import TlsConfig

__all__ = [
    "DLQ_PREFIX",
    "GROUP_BYTES_MAX",
    "TOPIC_BYTES_MAX",
    "ActionError",
    "ActionSpec",
    "Config",
    "ConfigError",
    "GroupConfig",
    "KafkaClusterConfig",
    "LagConfig",
    "LagRules",
    "Loaded",
    "NodeConfig",
    "Problem",
    "SubscriptionConfig",
    "TlsConfig",
    "TopicConfig",
    "check_group_name",
    "check_topic_name",
    "is_json_path",
    "is_system_topic",
    "load",
    "loads",
]
