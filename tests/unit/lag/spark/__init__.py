"""What executors of Spark run, without Spark."""
