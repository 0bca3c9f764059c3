"""Kafka as the log: the messages of a group's topics from a Kafka cluster, over `upstream.kafka.link`.

Nothing in here imports a Kafka client: what reaches the network is handed in, so that the same code runs over
librdkafka (`upstream.kafka_client`) and over a cluster in memory (`tests.fakes.kafka`). What stays elsewhere: order,
retries and what a result means (`upstream.delivery`), and publishing (`proxy.services`).
"""
