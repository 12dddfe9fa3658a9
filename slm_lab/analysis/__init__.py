"""What the rows of a run say: metrics with their definitions, and graphs."""
