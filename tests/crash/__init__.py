"""Real node processes, killed with SIGKILL while clients publish, pull and ack."""
