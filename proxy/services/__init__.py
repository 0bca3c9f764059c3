"""What the calls of DDMQ's Thrift mean: sends, pulls, results, delays, transactions, and the checks before them.

A service answers through a connection's places and asks the broker and groups; it opens nothing.
"""
