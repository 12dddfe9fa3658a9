"""All that trains: one run, a search, a comparison, the short runs of a probe."""
