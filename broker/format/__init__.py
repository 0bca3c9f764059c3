"""Bytes in, bytes out: records, property blocks, bodies, identities and hashes, in RocketMQ's layout.

No file is opened here, and nothing is known of queues or of an open store.
"""
