"""What people may change of a running node: one desk, and a module per subject."""
