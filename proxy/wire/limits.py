"""Bounds on what one frame may make us do; the frame's own length is bounded before (`frames`)."""

from __future__ import annotations

DEPTH_MAX = 32
"""Levels of containers and structs inside each other; Thrift's own libraries take 64 and fell over theirs."""

METHOD_BYTES_MAX = 128
"""Length of a method name; ours have at most 15 bytes."""

RESULTS_MAX = 10_000
"""Elements of one nextResult chain."""

OFFSETS_MAX = 65_536
"""Success and fail offsets in one call, over the whole chain; more than a client can have in hand of a few groups."""

MESSAGES_MAX = 20_000
"""Messages in one sendBatchSync, elements of any other list of structs, entries of a map; a body has at least a byte,
and an empty message costs 200 times its wire bytes."""

STEPS_MAX = 8_192
"""Steps of a frame that are taken for nothing (`proxy.wire.steps`): 10 ms or so."""

STEPS_PER_MESSAGE = 2
"""How many more there are for each message of a batch: fields of a newer client."""

PROPERTIES_MAX = 1_024
"""Properties of one message; RocketMQ's block of 32,767 bytes holds fewer useful ones."""

PROPERTIES_PER_CALL_MAX = 65_536
"""Properties of all messages of a batch: each costs the loop about a microsecond, however short it is."""

REASON_BYTES_MAX = 2_048
"""What is kept of a reason that a client gives for a failure."""

assert RESULTS_MAX <= OFFSETS_MAX
