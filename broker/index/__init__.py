"""Index files: which records carry a key, in RocketMQ's layout."""
