"""Charts of what was trained, their files, and the statistics in them."""
