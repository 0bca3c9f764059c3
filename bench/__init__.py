"""Benchmarks of a running node, with a rival beside it in the same run: `python -m bench`, see docs/performance.md.

Not part of the product. Servers are started by their own commands and pinned to one core; clients run in other
processes on another core and speak over raw sockets with frames that were encoded beforehand, so that what is
measured is the server.
"""
