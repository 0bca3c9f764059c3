"""What operators see and change of groups: figures, stuck messages, heads, positions, pauses.

Cold paths: called for an operator.
"""
