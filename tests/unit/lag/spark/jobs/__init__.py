"""Jobs of Spark, without Spark."""
