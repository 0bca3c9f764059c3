"""Results of messages, as clients send them: in steps, held while the node starts, answered once they are durable."""
