"""Work on a store from outside: check, repair, reading without a lock, RocketMQ's interchange.

May use all of the broker; no running node needs it but to look.
"""
