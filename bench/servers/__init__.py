"""The servers that are measured, and how they are watched from inside."""
