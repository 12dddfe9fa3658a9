"""Action distributions and exploration."""
