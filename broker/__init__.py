"""The embedded broker: commit log, consume queues, recovery, topics and offsets in RocketMQ's on-disk formats.

May import `conf` and nothing else of this project. No sockets, no event loop and no thread of its own may enter:
time, disk and randomness are handed in (see `broker.runtime.seams`), and the caller decides when to flush.
"""
