"""What is looked for in steps of bounded work: messages, dead letters, and what waits.

The admin port and commands on a store that no node has open do the same with it.
"""
