"""Modes of parallel training, one folder each, and the modules they share."""
