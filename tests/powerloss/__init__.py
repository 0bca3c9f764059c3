"""Real node processes over a file system that forgets what was not synced."""
