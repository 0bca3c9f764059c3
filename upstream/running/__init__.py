"""From a free permit through the actions of one subscription: admission, the order gate, what is behind it.

Nothing is read here, and no client is known.
"""
