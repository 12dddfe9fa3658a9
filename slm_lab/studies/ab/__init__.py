"""A test of two specs: one more seed of each, until the answer is known."""
