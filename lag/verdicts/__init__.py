"""What the rules say of each group, and when that changes: pure, for the node and for `lag watch`.

Nothing here imports Spark or the node; `webhook` alone does I/O.
"""
