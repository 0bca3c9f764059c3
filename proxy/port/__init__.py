"""Connections: frames in and replies out in order, fair shares, bounds on memory, the network edge.

Nothing here knows what a call means.
"""
