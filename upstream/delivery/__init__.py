"""Groups, their subscriptions and generations: what is read, handed out in batches, and answered by clients.

No I/O but through the source and the progress that are handed in; nothing is known of connections.
"""
