"""What every implementation of a seam has to give, asked of each."""
