"""One node: its parts as configured, its opening, its turns, its reload and what recurs, from seams.

The command line and the simulation make the same node.
"""
