"""The network edge: Thrift codec and servers, both services, admin HTTP, command line, assembly.

May import every other room. Rules about messages, order and offsets do not belong here.
"""
