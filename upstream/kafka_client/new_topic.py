"""Makes a topic, for who has a cluster of its own to show something; nodes make none."""

from __future__ import annotations

from broker.runtime.seams import Clock
from conf.sections.kafka import KafkaClusterConfig
from upstream.kafka_client.package import confluent, failure_of
from upstream.kafka_client.settings import Settings

MAKE_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


def make_topic(config: KafkaClusterConfig, name: str, partitions: int, *, client_id: str, clock: Clock) -> None:
    """Make a topic with one replica, and wait until its partitions are led.

    Raises:
        KafkaUnusable: The package is missing, or refuses a setting.
        SecretUnreadable: A secret cannot be had.
        KafkaFailure: The cluster cannot be reached, or refuses.
    """
    package = confluent()
    from confluent_kafka.admin import NewTopic

    settings = Settings("demo", config, clock)
    admin = settings.admin(client_id)
    new = NewTopic(name, num_partitions=partitions, replication_factor=1)
    until = clock.monotonic() + MAKE_SECONDS
    try:
        admin.create_topics([new], request_timeout=MAKE_SECONDS)[name].result()
        while True:
            found = admin.list_topics(name, timeout=MAKE_SECONDS).topics[name].partitions
            if (len(found) == partitions and all(each.leader >= 0 for each in found.values())) or (
                clock.monotonic() > until
            ):
                return
            clock.sleep(_PAUSE_SECONDS)
    except package.KafkaException as error:
        raise failure_of(error, settings.hide(str(error.args[0].str() if error.args else error))) from None
