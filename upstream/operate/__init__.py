"""What operators see and change of groups: figures, stuck messages, heads, positions, pauses.

Cold paths: called when somebody asks.
"""
