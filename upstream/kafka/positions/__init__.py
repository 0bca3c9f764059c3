"""Where a member's partitions are read: from where on, how far, and whether it is still the same log and topic."""
