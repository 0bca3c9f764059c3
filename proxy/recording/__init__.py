"""What a node notes of consumption lag: where its groups stand, what waits in it, what happened to it, and when.

How that is in files is `lag.journal`'s, what it means `lag.rules`'. Nothing here is called per message, and nothing
that runs a group waits for it.
"""
