"""From the files that somebody left to an open store: lock, geometry, recovery, queues made again, checkpoints.

May use everything below it. After the opening only the checkpointer of it goes on.
"""
