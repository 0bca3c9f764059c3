"""Bounds on what one frame may make us do; the frame's own length is bounded before (`frames`)."""

from __future__ import annotations

DEPTH_MAX = 32
"""Levels of containers and structs inside each other; Thrift's own libraries take 64 and fell over theirs."""

METHOD_BYTES_MAX = 128
"""Length of a method name; ours have at most 15 bytes."""

RESULTS_MAX = 10_000
"""Elements of one nextResult chain."""

OFFSETS_MAX = 500_000
"""Success and fail offsets in one call, over the whole chain: 10 to 20 MB of Python numbers."""

MESSAGES_MAX = 20_000
"""Messages in one sendBatchSync, elements of any other list of structs, entries of a map; a body has at least a byte,
and an empty message costs 200 times its wire bytes."""

PROPERTIES_MAX = 1_024
"""Properties of one message; RocketMQ's block of 32,767 bytes holds fewer useful ones."""

VARINT32_BYTES_MAX = 5
VARINT64_BYTES_MAX = 10

assert RESULTS_MAX <= OFFSETS_MAX
assert VARINT32_BYTES_MAX * 7 >= 32
assert VARINT64_BYTES_MAX * 7 >= 64
