"""Jobs over samples: what `pyddmq lag report` and its like run in a Spark session (docs/lag.md)."""
