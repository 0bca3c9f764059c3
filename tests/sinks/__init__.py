"""Real servers behind the sinks: HBase, HDFS, S3, Redis; `make sinks`."""
