"""Actions in a whole node."""
