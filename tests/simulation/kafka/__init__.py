"""Three whole nodes over a simulated Kafka: nodes and cluster die, stand still and lose each other, by a seed."""
