"""Messages that wait for their moment on Kafka: delays, timers and loops of Kafka topics.

Data. A compacted topic (`__pyddmq_waiting`) has each waiting message whole (`records`). The identity of a message is
topic, principal and id; it chooses the partition. A record's key is the identity and a nonce of the attempt, so that a
client's resend never replaces what the owner wrote. A key has one of four states:

    waiting   the message, with its due time; of a loop the pending occurrence
    ended     a small record in its place: delivered, cancelled or refused, and when; kept for `remember`
    request   a cancel or a move that its owner has not decided
    repeat    a message whose identity another key already has; the owner deletes it

Ways. Any node appends a message or a request, and answers when Kafka has acknowledged it. Each partition has one owner
among the nodes, by a consumer group (`cluster`). The owner reads its partition (read committed) into a cache, one
SQLite file (`cache`), which may be deleted at any time: the log is the truth. All changes by an owner are Kafka
transactions (`owner`, `batches`) of one transactional id per partition: the messages for their target topics together
with the records that end them, or a request's deletion together with the change and the answer. So each happens whole
or not at all, and a former owner's transaction is fenced.

States of an owned partition:

    fencing -> reading -> serving          a takeover: fence, ask for the end, read to it
    serving -> fencing                     a commit of unknown outcome, a producer that ended, or another's fence
    any -> closed                          revoked, lost, or a cache that cannot be written

Only `serving` fires and decides. A decision is made from the cache, one transaction at a time, so requests and
deliveries of an identity never overlap.

Rooms. `upstream.kafka.link.KafkaTransactions` is the only way to the network that is new: `upstream.kafka_client` has
it over librdkafka, `tests.fakes.kafka` in memory. `proxy.services` appends messages and asks for cancels.
"""
