"""What the consuming side counts of messages, how long they take, and listeners to their endings.

Nothing here decides anything, or knows of groups.
"""
