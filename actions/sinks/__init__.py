"""Sinks: actions that end a pipeline by writing its messages into another system, once the write is durable there.

Each says what a repeat does: docs/sinks.md. `commands` holds what other actions ask of them; a folder each has redis,
hbase, hdfs and files. Clients are made by `actions.client_factories`, so that none is imported before a pipeline names
it.
"""
