"""Alarms about consumption lag: when one opens and closes, what is kept of that, and where it is told.

The rules are pure and look at judged rounds alone, so that a node and the job `watch` come to the same alarms. Nothing
here imports Spark or the node.
"""
