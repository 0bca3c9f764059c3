"""From a group's subscriptions to batches and back: order per key, the pull buffer, actions, outcomes of jobs.

No I/O but through the source and the progress that are handed in; nothing is known of connections.
"""
