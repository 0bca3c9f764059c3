"""What the consuming side counts of messages, how long they take, and who is told what became of them.

Nothing here decides anything, or knows of groups.
"""
