"""The Redis sink (docs/sinks.md): commands checked, one round trip per batch, each message whole or not at all."""
