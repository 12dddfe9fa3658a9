"""A run on disk: found by name, read damaged or growing, and trusted or not."""
