"""A real Apache RocketMQ from Maven Central: its jars, its processes, and the load that is put on it.

The interchange tests run the same processes with clients of their own.
"""
