"""One Session: an agent trains in its environments, in one process."""
