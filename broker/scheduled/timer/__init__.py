"""Timers: messages that wait for their moment, to the millisecond, over RocketMQ's timer log and wheel."""
