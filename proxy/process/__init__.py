"""The process around a node: real seams, signals, the watched configuration, logs, the service manager, exit codes.

The simulation has none of it.
"""
