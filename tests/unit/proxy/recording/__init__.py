"""What a node notes of lag."""
