"""Which timers are pending, and where: RocketMQ's timer log and wheel, what was read of them, and the checkpoints."""
