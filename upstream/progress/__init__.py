"""What every group has finished, kept through crashes: trackers, the ack journal, commits, and what a start finds.

Nothing here knows a job, an action or a client.
"""
