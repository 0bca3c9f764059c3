"""Commands about a running node: send, pull, groups, topics, offsets, dead letters, messages, reload.

One module for each.
"""
