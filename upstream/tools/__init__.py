"""A whole data directory from outside: backup and restore, check and repair of the ack journal.

No running node needs it but to be backed up.
"""
