"""From files on disk to an open store: lock, geometry, recovery, queues made again, checkpoints.

May use everything below it. After the opening only the checkpointer of it continues.
"""
