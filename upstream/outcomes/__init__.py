"""What becomes of a message: finished, tried again, kept for an operator, dead-lettered or sent to a retry topic.

Nothing is known of actions that ran or of clients that answered: callers hand in the result.
"""
