"""What a group counts of itself, and how long its messages take."""
