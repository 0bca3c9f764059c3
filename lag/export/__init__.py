"""Journals as Parquet, for Spark and whatever else reads it. The only folder beside `lag.spark` that uses pyarrow."""
