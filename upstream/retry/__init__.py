"""Redelivery and its end: the retry schedule, the retry topic, dead letters and their reasons.

The counts and moments are here; where a message is stored meanwhile is the source's business.
"""
