"""Sinks of files (docs/sinks.md): on the node's disk, in HDFS, and where pyarrow's file systems reach.

`sink` gathers messages and answers them; `ledger` is what it must know after a kill; `flushing` and `rotation` carry a
batch into files; `folders` says what they are written by, `local`, `webhdfs` and `arrow` do it; `formats`, `sequence`
and `parquet` make the bytes; `layout` makes the names.
"""
