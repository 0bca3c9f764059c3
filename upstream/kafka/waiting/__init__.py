"""Messages that wait on Kafka for their moment or their producer's decision: delays, timers, loops and transactions.

Data. A compacted topic (`__pyddmq_waiting`) has each waiting message whole (`records`). The identity of a message is
topic, principal and id; it chooses the partition. A record's key is the identity and a nonce of the attempt, so that a
client's resend never replaces what the owner wrote. A key has one of these states:

    waiting   the message, with its due time; of a loop the pending occurrence
    half      a message in a transaction, with the time of its next check; its commit delivers it, or has it wait
    discarded a half after its last check, or too old; kept for `remember`, decided by an operator
    ended     a small record in its place: delivered, cancelled, refused or rolled back, and when; kept for `remember`
    request   a cancel, a move or a decision that its owner has not carried out
    checks    how often a half was checked, and when it may be again
    repeat    a message whose identity another key already has; the owner deletes it

Ways. Any node appends a message or a request, and answers when Kafka has acknowledged it. Each partition has one owner
among the nodes, by a consumer group (`cluster`). The owner reads its partition (read committed) into a cache, one
SQLite file (`cache`), which may be deleted at any time: the log is the truth. Without one, a process of its own makes
it of a long log (`loading`). All changes by an owner are Kafka transactions (`owner`, `batches`) of the partition's
transactional ids (`lanes`): the messages for their target topics together with the records that end them, or a
request's deletion together with the change and the answer. So each happens whole or not at all. A former owner's
transaction is fenced, or has ended when its lease is over. One id writes for healthy targets; by the others, targets
under suspicion (`targets`) are tried alone meanwhile.

States of an owned partition:

    fencing -> reading -> serving          a takeover: fence, commit in the group, ask for the end, read to it
    serving -> fencing                     a commit of unknown outcome, or another's fence
    any -> closed                          revoked, lost, or a cache that cannot be written

Only `serving` fires and decides. A decision is made from the cache, and no two transactions under way are about one
identity, so requests and deliveries of it never overlap.

Rooms. `upstream.kafka.link.KafkaTransactions` is the only way to the network that is new: `upstream.kafka_client` has
it over librdkafka, `tests.fakes.kafka` in memory. `proxy.services` appends messages and asks for cancels.
"""
