"""Tests over several rooms with real parts."""
