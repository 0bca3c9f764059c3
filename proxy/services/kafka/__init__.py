"""Publishing to topics in Kafka: which partition, under which number, what is under way, with which code it ends.

What all sends have in common stays above: checks, limits, replies (`proxy.services`).
"""
