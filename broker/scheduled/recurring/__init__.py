"""Loops: messages that are delivered again and again, and DDMQ's ids for them and for single delayed messages."""
