"""Tests of pyddmq, by layer."""
