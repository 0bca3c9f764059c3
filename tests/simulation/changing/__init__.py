"""Runs of the simulation about changes of the configuration."""
