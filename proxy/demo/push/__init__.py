"""The demo of pushing: the permit events pushed to a receiver that misbehaves."""
