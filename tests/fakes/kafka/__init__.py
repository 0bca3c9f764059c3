"""A Kafka cluster in memory, by `upstream.kafka.link`.

What of Kafka matters to who reads and commits:

    log       order in a partition only; offsets that nobody can read (compaction, aborted records, markers); what an
              open transaction has written, and all behind it, is not told
    link      everything takes some time, and in order; a cut link holds what is under way until it is whole again,
              a reset one loses it: a question that was never put, or an answer
    groups    the rules of both coordinators (`classic`, `incremental`): who is silent for longer than its session is
              no member any more and hears of it last; commits are fenced by generation or epoch, never by partition
    producer  idempotent: sent again until it is acknowledged, in its order, stored once

The cluster's side runs outside of every simulated process (`pyddmq.testing.loop.Process`), a client's in the one that
made it: so a killed node's question may still arrive, and a node that stands still hears afterwards what was told to it
meanwhile.
"""
