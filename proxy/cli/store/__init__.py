"""Commands about a store: check, repair, backup, hand-over, and queries of one that is stopped.

They need no node.
"""
