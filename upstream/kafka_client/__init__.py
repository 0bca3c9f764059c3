"""A real Kafka behind the protocols of `upstream.kafka.link`, by confluent-kafka (librdkafka).

Nothing here may block the event loop, and nothing but this folder knows confluent-kafka, which is imported where a
client is made (D38). Threads:

    thread             one for each    does
    kafka-GROUP        member          polls, hands records on, asks what assignments need, hears of rebalances, commits
    kafka-ask-CLUSTER  client          asks for partitions and ends
    kafka-sent-CLUSTER producer        hears of deliveries
    kafka-read-CLUSTER reader          reads again

A consumer is called in its thread alone: the package lets calls of several wait for each other, a commit for a poll,
and for a revoke in which the poll waits. What threads have to report goes to the loop by `call_soon_threadsafe`, so in
the order in which it happened.
"""
