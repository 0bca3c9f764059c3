"""Commands about what waits: delays, timers, transactions, and their cancels.

One module for each.
"""
