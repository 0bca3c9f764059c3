"""The built-in actions and the registry that finds others by name, entry point or dotted path.

May import `upstream`, `conf` and `pyddmq.actions`. An action sees its job and nothing of connections or files.
"""
