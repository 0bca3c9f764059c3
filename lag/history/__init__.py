"""What a journal says of a span of time, without Spark: trends, and objectives that were kept."""
