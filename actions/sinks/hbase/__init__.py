"""The HBase sink (docs/sinks.md): mutations with the message's store time, through HBase's Thrift server."""
