"""One journal format for what clients did and saw, and rules that judge it without anything of the product.

`journal` writes, `rules` judges. The rules follow docs/promises.md and what is public of Jepsen's workload for Kafka.
"""
