"""What messages wait in until they are let through: chains per key, permits and rates, due times, the pull buffer.

No I/O, no actions, and nothing of what becomes of a message afterwards.
"""
