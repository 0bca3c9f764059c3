"""The lag journal: samples on disk, and back. Bytes, files and sums only: what a sample means is for the rules."""
