"""What makes the few rows of a report of many samples, without Spark, and the report of the rows."""
