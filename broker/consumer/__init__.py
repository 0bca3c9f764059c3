"""Consumers inside the program: RocketMQ's push consumers over the embedded broker, without any network.

`Consumers.open` makes them. May import nothing above `broker`.
"""
